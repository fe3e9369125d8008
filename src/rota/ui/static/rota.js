// Keeps a page current, counts ages, and lets the keyboard get around. Every page works without it, standing still.
"use strict";

(() => {
  const LOG_CHARS_MAX = 400_000;
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
    const scrolled = [...place.querySelectorAll(".scroll, .story")].map((each) => [each.scrollLeft, each.scrollTop, atEnd(each)]);
    place.innerHTML = fragment.html;
    place.dataset.mark = fragment.mark;
    localise(place);
    place.querySelectorAll(".scroll, .story").forEach((each, number) => {
      const [left, top, wasAtEnd] = scrolled[number] || [each.scrollWidth, 0, true];
      each.scrollLeft = left;
      each.scrollTop = wasAtEnd ? each.scrollHeight : top;
    });
    if (href) {
      const again = [...place.querySelectorAll("a[href]")].find((each) => each.getAttribute("href") === href);
      if (again) again.focus({ preventScroll: true });
    }
  };

  const atEnd = (element) => element.scrollTop + element.clientHeight >= element.scrollHeight - 8;

  const append = (said) => {
    const log = document.getElementById("log");
    if (!log) return;
    const wasAtEnd = atEnd(log);
    if (said.is_first) {
      // Most often it is what the page has already.
      if (log.textContent !== said.text) log.textContent = said.text;
      log.dataset.attempt = said.attempt;
    } else {
      log.append(said.text);
      if (log.textContent.length > LOG_CHARS_MAX) {
        log.textContent = log.textContent.slice(-LOG_CHARS_MAX / 2);
        document.getElementById("log-cut").hidden = false;
      }
    }
    if (wasAtEnd) log.scrollTop = log.scrollHeight;
  };

  let source = null;
  let again = 0;
  let waitMs = AGAIN_MS;

  const say = (word, text) => {
    pulse.hidden = false;
    pulse.className = `pulse ${word}`;
    pulse.textContent = text;
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

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const keys = {
      "/": () => document.querySelector("[data-filter]")?.focus(),
      j: () => step(1),
      k: () => step(-1),
      u: () => document.querySelector("[data-up]")?.click(),
    };
    if (!(event.key in keys)) return;
    keys[event.key]();
    event.preventDefault();
  });

  // A line is copied whole by a click on it.
  document.addEventListener("click", (event) => {
    const line = event.target.closest(".cli");
    if (line) getSelection().selectAllChildren(line);
  });

  localise(document);
  setInterval(count, 1_000);
  for (const each of document.querySelectorAll(".log, .story")) each.scrollTop = each.scrollHeight;
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
