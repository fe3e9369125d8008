// A log by its lines: numbers, permalinks, search, the first error. The page holds the lines around those that are
// looked at; the service has the others, counts all of them and searches them.
"use strict";

(() => {
  const log = document.getElementById("log");
  if (!log) return;
  const BLOCK_LINES = 200;
  const BLOCKS_KEPT_MAX = 60;
  // Browsers have a limit of height; beyond this one, lines that are not in the page take less room than others.
  const HEIGHT_PX_MAX = 10_000_000;
  const MATCHES_AT_ONCE = 5_000;
  const MATCHES_MAX = 100_000;
  const TYPING_MS = 150;
  const bar = document.getElementById("log-bar");
  const cut = document.getElementById("log-cut");
  const field = bar.querySelector("[data-filter]");
  const output = bar.querySelector("output");
  const above = document.createElement("div");
  const below = document.createElement("div");

  // Which log it is, how many lines it has, and how often it was looked at.
  let name = "";
  let total = 0;
  let looks = 0;
  // Blocks of lines by their numbers, and the first and the one after the last that are in the page.
  const blocks = new Map();
  let from = 0;
  let to = 0;
  let lineHeight = 18;
  let draws = 0;
  // The line that was found last, and the search that goes on.
  let current = 0;
  let search = null;

  const ask = async (what, query) => {
    const url = new URL(`${log.dataset.tasks}/${encodeURIComponent(log.dataset.task)}/log/${what}`, location.href);
    const given = { attempt: log.dataset.attempt, ...query };
    for (const [key, value] of Object.entries(given)) if (value) url.searchParams.set(key, value);
    try {
      const answer = await fetch(url, { headers: { Accept: "application/json" } });
      return answer.ok ? await answer.json() : null;
    } catch {
      // The service cannot be reached; the stream of events says so, and when it is back.
      return null;
    }
  };

  // Blocks.

  const count = () => Math.ceil(total / BLOCK_LINES);
  const blockOf = (number) => Math.floor((number - 1) / BLOCK_LINES);
  const around = (block) => [Math.max(0, block - 1), Math.min(count(), block + 2)];

  // A block that had the last line when it was read may have more since.
  const isCurrent = (block) => block && (!block.hasLast || block.look === looks);

  const load = async (number) => {
    const known = blocks.get(number);
    blocks.delete(number);
    const block = isCurrent(known) ? known : await read(number);
    if (!block) return null;
    blocks.set(number, block);
    if (blocks.size > BLOCKS_KEPT_MAX) blocks.delete(blocks.keys().next().value);
    return block;
  };

  const read = async (number) => {
    const first = number * BLOCK_LINES + 1;
    const last = Math.min(total, first + BLOCK_LINES - 1);
    const block = { number, first, lines: [], errors: new Set(), look: looks, hasLast: last === total };
    const ofLog = name;
    while (first + block.lines.length <= last) {
      const next = first + block.lines.length;
      const page = await ask("lines", { log: ofLog, first: next, count: last - next + 1 });
      if (!page || !page.lines.length || name !== ofLog) return null;
      block.lines.push(...page.lines);
      for (const each of page.errors) block.errors.add(each);
    }
    return block;
  };

  const makeBlock = (block) => {
    const element = document.createElement("div");
    element.block = block;
    block.lines.forEach((text, place) => {
      const number = block.first + place;
      const line = document.createElement("div");
      const link = document.createElement("a");
      line.id = `L${number}`;
      line.className = block.errors.has(number) ? "line wrong-line" : "line";
      link.href = `#L${number}`;
      link.dataset.n = number;
      link.tabIndex = -1;
      link.setAttribute("aria-label", `Line ${number}`);
      line.append(link, `${text}\n`);
      element.append(line);
    });
    return element;
  };

  // The page.

  const shown = () => [...log.children].filter((each) => each.block);
  const atEnd = () => to >= count() && log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  const firstVisible = () => [...log.querySelectorAll(".line")].find((line) => line.offsetTop + line.offsetHeight > log.scrollTop);
  const setSpace = (element, lines) => { element.style.height = `${lines * Math.min(lineHeight, HEIGHT_PX_MAX / total)}px`; };

  // Puts blocks into the page in place of those that are there. The first line that is seen stays where it is.
  const draw = async (first, end) => {
    draws += 1;
    const mine = draws;
    const wanted = await Promise.all(Array.from({ length: end - first }, (_, place) => load(first + place)));
    if (mine !== draws || wanted.includes(null)) return false;
    const seen = firstVisible();
    const seenAt = seen ? seen.offsetTop - log.scrollTop : 0;
    const known = new Map(shown().map((element) => [element.block, element]));
    log.replaceChildren(above, ...wanted.map((block) => known.get(block) ?? makeBlock(block)), below);
    [from, to] = [first, end];
    const lines = wanted.reduce((sum, block) => sum + block.lines.length, 0);
    if (lines) lineHeight = (below.offsetTop - above.offsetTop - above.offsetHeight) / lines || lineHeight;
    setSpace(above, from * BLOCK_LINES);
    setSpace(below, Math.max(0, total - to * BLOCK_LINES));
    const kept = seen && document.getElementById(seen.id);
    if (kept) log.scrollTop = kept.offsetTop - seenAt;
    cut.hidden = true;
    bar.hidden = false;
    mark();
    return true;
  };

  const mark = () => {
    const [first, last] = range();
    const found = new Set(search ? search.lines : []);
    for (const line of log.querySelectorAll(".line")) {
      const number = Number(line.id.slice(1));
      line.classList.toggle("here", number >= first && number <= last);
      line.classList.toggle("now", number === current);
      line.classList.toggle("hit", found.has(number));
    }
  };

  const reveal = async (number) => {
    if (!await draw(...around(blockOf(number)))) return;
    document.getElementById(`L${number}`)?.scrollIntoView({ block: "center" });
  };

  // Scrolling to a place without lines loads the lines that belong there.
  const onScroll = () => {
    if (!to) return;
    const begin = above.offsetHeight;
    const end = log.scrollHeight - below.offsetHeight;
    const top = log.scrollTop;
    const bottom = top + log.clientHeight;
    let number = 0;
    if (bottom < begin) number = 1 + Math.floor(from * BLOCK_LINES * (top / begin));
    else if (top > end) number = Math.min(total, 1 + Math.floor(to * BLOCK_LINES + (total - to * BLOCK_LINES) * ((top - end) / below.offsetHeight)));
    if (number) {
      draw(...around(blockOf(number))).then((isDrawn) => {
        const line = isDrawn && document.getElementById(`L${number}`);
        if (line) log.scrollTop = line.offsetTop;
      });
      return;
    }
    const isNear = (top - begin < log.clientHeight && from > 0) || (end - bottom < log.clientHeight && to < count());
    const seen = isNear && firstVisible();
    if (!seen) return;
    const [first, last] = around(blockOf(Number(seen.id.slice(1))));
    if (first !== from || last !== to) draw(first, last);
  };
  log.addEventListener("scroll", () => requestAnimationFrame(onScroll), { passive: true });

  // What is new. One look at a time; whatever happens meanwhile is looked at after it.

  let isLooking = false;
  let isStale = false;

  const look = async () => {
    isStale = isLooking;
    if (isLooking) return;
    isLooking = true;
    const page = await ask("lines", { count: 1 });
    if (page?.total) await update(page);
    isLooking = false;
    if (isStale) look();
  };

  const update = async (page) => {
    const isFirst = page.log !== name;
    const wasAtEnd = isFirst || atEnd();
    if (isFirst) {
      blocks.clear();
      [name, from, to, current, search] = [page.log, 0, 0, 0, null];
    }
    [total, looks] = [page.total, looks + 1];
    const [number] = range();
    if (isFirst && number && number <= total) await reveal(number);
    else if (!wasAtEnd) await draw(from, Math.min(to, count()));
    else if (await draw(...around(count() - 1))) log.scrollTop = log.scrollHeight;
    onScroll();
    if (isFirst && field.value) startSearch();
    else if (search) searchOn();
  };

  log.addEventListener("rota:log", (event) => {
    const { task, attempt } = event.detail;
    if (log.dataset.task !== task || log.dataset.attempt !== String(attempt)) {
      log.dataset.task = task;
      log.dataset.attempt = attempt;
    }
    look();
  });

  // Permalinks: a line, or from one to another.

  const range = () => {
    const found = /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash);
    return found ? [Number(found[1]), Number(found[2] || found[1])] : [0, -1];
  };

  const goTo = () => {
    const [number] = range();
    if (number > total && total) output.textContent = `There is no line ${number}`;
    else if (number && total) reveal(number);
    mark();
  };

  log.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-n]");
    if (!link) return;
    event.preventDefault();
    const [first] = range();
    const number = Number(link.dataset.n);
    // The newest attempt, or the task that should be seen first, may be another one tomorrow.
    const url = new URL(location.href);
    url.searchParams.set("attempt", log.dataset.attempt);
    if ("named" in log.dataset) url.searchParams.set("task", log.dataset.task);
    url.hash = event.shiftKey && first && first < number ? `L${first}-L${number}` : `L${number}`;
    history.replaceState(null, "", url);
    mark();
  });
  addEventListener("hashchange", goTo);

  // Search, and the first error.

  const say = () => {
    const found = search.lines.length;
    const place = search.lines.indexOf(current);
    const more = search.isEnd ? "" : "+";
    if (place >= 0) output.textContent = `${place + 1} of ${found}${more}`;
    else output.textContent = found || !search.isEnd ? `${found}${more} ${found === 1 && !more ? "line" : "lines"}` : "no lines";
  };

  // Until so many lines are known, or all, or something else is searched for.
  const searchOn = async () => {
    const mine = search;
    mine.isEnd = false;
    if (mine.isRunning) return;
    mine.isRunning = true;
    while (!mine.isEnd && mine.lines.length < mine.most) {
      const some = await ask("search", { log: name, text: mine.text, first: mine.next, limit: MATCHES_AT_ONCE });
      if (!some || mine !== search) break;
      // A line that had no end is searched again.
      mine.lines = [...mine.lines.filter((number) => number < mine.next), ...some.lines];
      [mine.next, mine.isEnd] = [some.next, some.is_end];
      say();
      mark();
    }
    mine.isRunning = false;
  };

  const startSearch = () => {
    current = 0;
    search = field.value ? { text: field.value, lines: [], next: 1, most: MATCHES_MAX, isEnd: false, isRunning: false } : null;
    output.textContent = "";
    mark();
    return search ? searchOn() : undefined;
  };

  const step = async (by) => {
    if (!search) await startSearch();
    if (!search || !search.lines.length) return;
    const { lines } = search;
    const next = by > 0 ? lines.findIndex((number) => number > current) : lines.findLastIndex((number) => number < (current || Infinity));
    if (next < 0 && by > 0 && !search.isEnd) {
      search.most += MATCHES_MAX;
      await searchOn();
      return;
    }
    current = lines.at(next < 0 ? (by > 0 ? 0 : -1) : next);
    say();
    reveal(current);
  };

  const firstError = async () => {
    for (let first = 1; ;) {
      const some = await ask("search", { log: name, first });
      if (!some) return;
      if (some.lines.length) {
        [current] = some.lines;
        output.textContent = `line ${current}`;
        reveal(current);
        return;
      }
      if (some.is_end) break;
      first = some.next;
    }
    output.textContent = "no errors";
  };

  let typed = 0;
  field.addEventListener("input", () => {
    clearTimeout(typed);
    search = null;
    typed = setTimeout(startSearch, TYPING_MS);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(typed);
    step(event.shiftKey ? -1 : 1);
  });
  bar.querySelector("[data-wrong]").addEventListener("click", firstError);
  document.addEventListener("keydown", (event) => {
    if (event.key === "e" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, textarea")) firstError();
  });

  if (log.dataset.attempt !== "0") look();
})();
