// Keeps a page current, counts ages, and lets the keyboard get around. Every page works without it, standing still.
"use strict";

(() => {
  const AGAIN_MS = 2_000;
  const AGAIN_MS_MAX = 30_000;
  const body = document.body;
  const pulse = document.getElementById("pulse");
  // The service's clock may differ from this one.
  const ahead = body.dataset.now ? Date.now() - Number(body.dataset.now) : 0;

  // Times: local ones to read, UTC on hover.

  const local = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hourCycle: "h23",
  });

  const span = (ms) => {
    if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
    if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
    const minutes = Math.floor(ms / 60_000);
    if (minutes < 60) return `${minutes} min ${String(Math.floor(ms / 1_000) % 60).padStart(2, "0")} s`;
    return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  };

  const ago = (ms) => {
    const seconds = Math.round(ms / 1_000);
    if (seconds < 2) return "just now";
    if (seconds < 60) return `${seconds} s ago`;
    if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`;
    if (seconds < 48 * 3_600) return `${Math.floor(seconds / 3_600)} h ago`;
    return `${Math.floor(seconds / 86_400)} days ago`;
  };

  const utc = (at) => `${new Date(at).toISOString().slice(0, 19).replace("T", " ")} UTC`;

  const localise = (root) => {
    for (const each of root.querySelectorAll("time[data-at]")) {
      const at = Number(each.dataset.at);
      each.textContent = local.format(at);
      each.title = utc(at);
    }
    for (const each of root.querySelectorAll("time[data-ago]")) {
      const at = Number(each.dataset.ago);
      each.title = `${local.format(at)} (${utc(at)})`;
    }
    count();
  };

  const count = () => {
    const now = Date.now() - ahead;
    for (const each of document.querySelectorAll("time[data-ago]")) each.textContent = ago(now - Number(each.dataset.ago));
    for (const each of document.querySelectorAll("[data-since]")) each.textContent = span(now - Number(each.dataset.since));
  };

  // What changed, as the service sends it.

  const replace = (fragment) => {
    const place = document.getElementById(fragment.id);
    if (!place || place.dataset.mark === fragment.mark) return;
    const focused = place.contains(document.activeElement) ? document.activeElement : null;
    const href = focused && focused.getAttribute("href");
    const scrolled = [...place.querySelectorAll(".scroll, .pan, .story")].map((each) => [each.scrollLeft, each.scrollTop, atEnd(each)]);
    const folds = new Map([...place.querySelectorAll("details > summary")].map((each) => [each.textContent, each.parentElement.open]));
    place.innerHTML = fragment.html;
    for (const each of place.querySelectorAll("details > summary")) each.parentElement.open = folds.get(each.textContent) ?? each.parentElement.open;
    place.dataset.mark = fragment.mark;
    for (const each of place.querySelectorAll('input[name="once"]')) each.value = body.dataset.once;
    localise(place);
    place.querySelectorAll(".scroll, .pan, .story").forEach((each, number) => {
      const [left, top, wasAtEnd] = scrolled[number] || [each.matches(".scroll") ? each.scrollWidth : 0, 0, true];
      each.scrollLeft = left;
      each.scrollTop = wasAtEnd && each.matches(".story") ? each.scrollHeight : top;
    });
    if (href) {
      const again = [...place.querySelectorAll("a[href]")].find((each) => each.getAttribute("href") === href);
      if (again) again.focus({ preventScroll: true });
    }
  };

  const atEnd = (element) => element.scrollTop + element.clientHeight >= element.scrollHeight - 8;

  // Whoever shows a log takes it from here.
  const append = (said) => document.getElementById("log")?.dispatchEvent(new CustomEvent("rota:log", { detail: said }));

  let source = null;
  let again = 0;
  let waitMs = AGAIN_MS;

  const say = (word, text) => {
    pulse.hidden = false;
    pulse.className = `pulse ${word}`;
    pulse.textContent = text;
  };

  // Whoever is not known any more is led to sign in, and back to here.
  const askWhoWeAre = async () => {
    try {
      const found = await fetch(location.href, { redirect: "manual", headers: { Accept: "text/html" } });
      if (found.type === "opaqueredirect") location.reload();
    } catch {
      // Nobody answers; that is tried again anyway.
    }
  };

  const open = () => {
    clearTimeout(again);
    if (source) source.close();
    source = new EventSource(body.dataset.live);
    source.addEventListener("open", () => { waitMs = AGAIN_MS; say("on", "live"); });
    source.addEventListener("fragments", (event) => JSON.parse(event.data).forEach(replace));
    source.addEventListener("log", (event) => append(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      say("off", "not live, trying again");
      // A connection that broke is made anew by the browser; one that was refused is not.
      if (source.readyState !== EventSource.CLOSED) return;
      askWhoWeAre();
      again = setTimeout(open, waitMs);
      waitMs = Math.min(AGAIN_MS_MAX, waitMs * 2);
    });
  };

  const close = () => {
    clearTimeout(again);
    if (source) source.close();
    source = null;
  };

  // The keyboard.

  const step = (by) => {
    const rows = [...document.querySelectorAll("[data-row]")];
    if (!rows.length) return;
    const here = rows.indexOf(document.activeElement);
    rows[Math.min(rows.length - 1, Math.max(0, here + by))].focus();
  };

  const help = document.getElementById("help");
  const PREFIX_MS = 1_500;
  let prefixedAt = -Infinity;

  const seek = () => {
    const field = document.querySelector("[data-filter]") || document.querySelector("[data-find]");
    if (!field) return;
    field.focus();
    field.select();
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (help?.open) return;
    const isPrefixed = event.timeStamp - prefixedAt < PREFIX_MS;
    prefixedAt = -Infinity;
    const place = document.querySelector(`[data-${isPrefixed ? "key" : "view"}="${CSS.escape(event.key)}"]`);
    const keys = {
      "/": seek,
      "?": () => help?.showModal(),
      g: () => { prefixedAt = event.timeStamp; },
      j: () => step(1),
      k: () => step(-1),
      u: () => document.querySelector("[data-up]")?.click(),
    };
    if (place) place.click();
    else if (event.key in keys) keys[event.key]();
    else return;
    event.preventDefault();
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-help]")) help?.showModal();
    // A click beside it closes it.
    else if (event.target === help) help.close();
  });

  // A statement is sent with Ctrl and Enter; a form that is on its way is not sent again.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.closest("textarea")?.form?.requestSubmit();
  });
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
  });
  // A page that the browser kept has forms that were sent already.
  addEventListener("pageshow", (event) => {
    if (event.persisted && document.querySelector('input[name="once"]')) location.reload();
  });

  // A line is copied whole by a click on it.
  document.addEventListener("click", (event) => {
    const line = event.target.closest(".cli");
    if (line) getSelection().selectAllChildren(line);
  });

  document.querySelector(".places [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  localise(document);
  setInterval(count, 1_000);
  for (const each of document.querySelectorAll(".story")) each.scrollTop = each.scrollHeight;
  for (const each of document.querySelectorAll(".scroll")) each.scrollLeft = each.scrollWidth;
  for (const each of document.querySelectorAll(".keys")) each.hidden = false;
  if (body.dataset.live) {
    // Browsers have few connections to one host: who does not look needs none.
    const attend = () => (document.hidden ? close() : open());
    document.addEventListener("visibilitychange", attend);
    addEventListener("pagehide", close);
    addEventListener("pageshow", (event) => { if (event.persisted) attend(); });
    attend();
  }
})();
