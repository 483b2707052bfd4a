"use strict";
// Finds and opens what is on the page; nothing on it needs this.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  const calls = all("li.call");
  const sessions = all("section.session");
  const [query, filter, found, keys] = ["query", "filter", "found", "keys"].map(byId);
  const texts = new Map();

  all("[hidden]").forEach((part) => { part.hidden = false; });

  function textOf(call) {
    if (!texts.has(call)) texts.set(call, call.textContent.toLowerCase());
    return texts.get(call);
  }

  function find() {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const call of calls) {
      const marks = call.dataset.is.split(" ");
      const fits = (!filter.value || marks.includes(filter.value))
        && words.every((word) => textOf(call).includes(word));
      call.hidden = !fits;
      count += fits ? 1 : 0;
    }
    for (const session of sessions) {
      session.hidden = !session.querySelector("li.call:not([hidden])");
    }
    found.value = words.length || filter.value ? `${count} of ${calls.length} calls` : "";
  }

  function openAll(open) {
    for (const call of calls) {
      if (!call.hidden) call.firstElementChild.open = open;
    }
  }

  // Something that a link leads to is shown, whatever has been searched for.
  function reveal() {
    const target = byId(location.hash.slice(1));
    const call = target && target.closest("li.call");
    if (!call) return;
    if (call.hidden) {
      query.value = "";
      filter.value = "";
      find();
    }
    call.firstElementChild.open = true;
    target.scrollIntoView();
  }

  function step(by) {
    const shown = calls.filter((call) => !call.hidden);
    const here = document.activeElement && document.activeElement.closest("li.call");
    const at = here ? shown.indexOf(here) + by : 0;
    const next = shown[Math.min(Math.max(at, 0), shown.length - 1)];
    if (!next) return;
    next.querySelector("summary").focus();
    next.scrollIntoView({ block: "nearest" });
  }

  let waiting = 0;
  query.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(find, 120);
  });
  filter.addEventListener("change", find);
  byId("open-all").addEventListener("click", () => openAll(true));
  byId("close-all").addEventListener("click", () => openAll(false));
  addEventListener("hashchange", reveal);
  addEventListener("beforeprint", () => openAll(true));
  addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, select");
    if (event.key === "Escape" && event.target === query) {
      query.value = "";
      find();
    }
    if (isTyping || !keys.checked || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      query.focus();
    } else if (event.key === "j" || event.key === "k") {
      step(event.key === "j" ? 1 : -1);
    }
  });
  reveal();
})();
