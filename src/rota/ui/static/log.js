// A log, line by line: numbers, permalinks, search, the first error, and the whole of it if only its end was sent.
"use strict";

(() => {
  const log = document.getElementById("log");
  if (!log) return;
  const CHARS_MAX = 400_000;
  const WHOLE_CHARS_MAX = 8_000_000;
  const WRONG = /(?:error|exception|\btraceback|\bfatal|\bpanic(?:ked)?|\bsegmentation fault)\b/i;
  const bar = document.getElementById("log-bar");
  const cut = document.getElementById("log-cut");
  const find = bar.querySelector("[data-filter]");
  const found = bar.querySelector("output");
  const wrongButton = bar.querySelector("[data-wrong]");
  const wholeButton = document.querySelector("[data-whole]");

  // The text that is shown; the number of its first line, or 0 if that is not known; and its last line if it goes on.
  let text = "";
  let first = 1;
  let open = null;
  // Whether all of it is wanted, and who waits for that.
  let isWhole = false;
  let waiting = [];

  const atEnd = () => log.scrollTop + log.clientHeight >= log.scrollHeight - 8;

  const makeLine = (number, words) => {
    const line = document.createElement("div");
    line.className = WRONG.test(words) ? "line wrong-line" : "line";
    const link = document.createElement("a");
    if (number) {
      line.id = `L${number}`;
      link.href = `#L${number}`;
      link.dataset.n = number;
      link.tabIndex = -1;
      link.setAttribute("aria-label", `Line ${number}`);
    }
    line.append(link, words);
    return line;
  };

  // What is added may go on with the last line; everything else is new lines.
  const add = (words) => {
    const pieces = words.split("\n");
    const lines = document.createDocumentFragment();
    let number = first ? first + text.split("\n").length - 1 : 0;
    pieces.forEach((piece, place) => {
      const isOpen = place === pieces.length - 1;
      const whole = (place === 0 && open ? open.dataset.text : "") + piece;
      if (isOpen && whole === "") {
        if (place === 0) return;
        open = null;
        return;
      }
      const line = makeLine(number, isOpen ? whole : `${whole}\n`);
      if (place === 0 && open) open.replaceWith(line);
      else lines.append(line);
      if (isOpen) line.dataset.text = whole;
      open = isOpen ? line : null;
      if (first) number += 1;
    });
    log.append(lines);
    text += words;
  };

  const shorten = () => {
    if (text.length <= (isWhole ? WHOLE_CHARS_MAX : CHARS_MAX)) return;
    const kept = text.slice(text.indexOf("\n", text.length / 2) + 1);
    const dropped = text.slice(0, text.length - kept.length).split("\n").length - 1;
    for (let count = 0; count < dropped && log.firstChild; count += 1) log.firstChild.remove();
    if (first) first += dropped;
    text = kept;
    cut.hidden = false;
  };

  const replace = (words, number) => {
    log.replaceChildren();
    text = "";
    open = null;
    first = number;
    add(words);
  };

  const settle = () => {
    wrongButton.disabled = !log.querySelector(".wrong-line");
    bar.hidden = !text;
    if (find.value) search(0);
  };

  log.addEventListener("rota:log", (event) => {
    const said = event.detail;
    const wasAtEnd = atEnd();
    if (said.is_first) {
      log.dataset.attempt = said.attempt;
      if ("task" in log.dataset) log.dataset.task = said.task;
      // Most often it is what the page has already.
      if (text !== said.text) replace(said.text, said.is_cut ? 0 : 1);
      cut.hidden = !said.is_cut;
    } else {
      add(said.text);
    }
    shorten();
    settle();
    if (wasAtEnd) log.scrollTop = log.scrollHeight;
    if (range() && !log.querySelector(".line.here")) goTo();
    if (isWhole) waiting.splice(0).forEach((go) => go());
  });

  // The whole of it.

  // The stream is opened anew, and begins with the first line.
  const loadAll = () => new Promise((go) => {
    if (isWhole && !waiting.length) return go();
    waiting.push(go);
    if (isWhole) return undefined;
    isWhole = true;
    const live = new URL(document.body.dataset.live, location.href);
    live.searchParams.set("whole", "1");
    document.body.dataset.live = live.pathname + live.search;
    document.dispatchEvent(new Event("rota:anew"));
    return undefined;
  });

  // Permalinks: a line, or from one to another.

  const range = () => /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash);

  const goTo = async () => {
    const asked = range();
    for (const line of log.querySelectorAll(".line.here")) line.classList.remove("here");
    if (!asked) return;
    if (!document.getElementById(`L${asked[1]}`)) await loadAll();
    const [from, to] = [Number(asked[1]), Number(asked[2] || asked[1])];
    for (let number = from; number <= to; number += 1) document.getElementById(`L${number}`)?.classList.add("here");
    document.getElementById(`L${from}`)?.scrollIntoView({ block: "center" });
  };

  log.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-n]");
    if (!link) return;
    event.preventDefault();
    const from = range();
    const isRange = event.shiftKey && from && Number(from[1]) < Number(link.dataset.n);
    // The newest attempt, or the task that should be seen first, may be another one tomorrow.
    const url = new URL(location.href);
    url.searchParams.set("attempt", log.dataset.attempt);
    if (log.dataset.task) url.searchParams.set("task", log.dataset.task);
    url.hash = isRange ? `L${from[1]}-L${link.dataset.n}` : `L${link.dataset.n}`;
    history.replaceState(null, "", url);
    goTo();
  });
  addEventListener("hashchange", goTo);

  // Search, and the first error.

  const show = (line) => {
    for (const other of log.querySelectorAll(".line.now")) other.classList.remove("now");
    line.classList.add("now");
    line.scrollIntoView({ block: "center" });
  };

  const search = (step) => {
    const words = find.value.toLowerCase();
    const lines = [...log.children];
    const hits = words ? lines.filter((line) => line.textContent.toLowerCase().includes(words)) : [];
    for (const line of lines) line.classList.toggle("hit", hits.includes(line) && hits.length < 2_000);
    found.textContent = words ? (hits.length ? `${hits.length} ${hits.length === 1 ? "line" : "lines"}` : "nowhere") : "";
    if (!hits.length || !step) return;
    const here = hits.findIndex((line) => line.classList.contains("now"));
    const next = (here + step + hits.length) % hits.length;
    found.textContent = `${next + 1} of ${hits.length}`;
    show(hits[next]);
  };

  find.addEventListener("input", async () => {
    if (find.value && !cut.hidden) await loadAll();
    search(0);
  });
  find.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    search(event.shiftKey ? -1 : 1);
  });
  const firstWrong = async () => {
    // It may be before what is shown.
    if (!cut.hidden) await loadAll();
    const line = log.querySelector(".wrong-line");
    if (line) show(line);
  };
  wrongButton.addEventListener("click", firstWrong);
  document.addEventListener("keydown", (event) => {
    if (event.key === "e" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, textarea")) firstWrong();
  });
  wholeButton.addEventListener("click", loadAll);
  wholeButton.hidden = false;

  replace(log.textContent, cut.hidden ? 1 : 0);
  settle();
  log.scrollTop = log.scrollHeight;
  goTo();
})();
