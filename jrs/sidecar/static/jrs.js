// Live without polling: an event says that something is different, then the page is fetched again,
// and only those of its parts that differ are swapped. Without this script, reload the page.
"use strict";
(() => {
  const main = document.querySelector("main[data-events]");
  const live = document.getElementById("live");
  if (!main || !window.EventSource) return;
  let busy = false;
  let again = false;
  let leftOut = false;
  let readAt = now();
  let seen = !main.querySelector('[data-part="problem"]'); // Whether there is a picture to keep.

  function now() {
    return new Date().toISOString().slice(0, 19).replace("T", " ");
  }

  function say(text, isOld = true) {
    live.textContent = text;
    live.classList.toggle("old", isOld);
  }

  // While the backend does not answer, the last picture stays below what says so, and since when.
  function keep(problem) {
    const said = document.createElement("p");
    said.textContent = `What follows was read at ${readAt}.`;
    problem.append(said);
    const old = main.querySelector('[data-part="problem"]');
    if (old) old.replaceWith(problem);
    else main.prepend(problem);
  }

  function swap(fresh) {
    leftOut = false;
    const news = new Map([...fresh.querySelectorAll("[data-part]")].map((one) => [one.dataset.part, one]));
    const olds = [...main.querySelectorAll("[data-part]")];
    const names = olds.map((one) => one.dataset.part).join();
    if (names !== [...news.keys()].join()) {
      main.replaceChildren(...fresh.childNodes);
      return;
    }
    for (const old of olds) {
      const one = news.get(old.dataset.part);
      const wasOpen = old.querySelector("details[open]");
      if (wasOpen) one.querySelector("details")?.setAttribute("open", "");
      if (old.outerHTML === one.outerHTML) continue;
      // A part that is read or scrolled with the keyboard stays until the focus leaves it.
      if (old.contains(document.activeElement)) leftOut = true;
      else old.replaceWith(one);
    }
  }

  async function refresh() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("main[data-events]");
      const problem = answer.status === 503 && fresh?.querySelector('[data-part="problem"]');
      if (problem && seen) keep(problem);
      else if (fresh) swap(fresh);
      if (answer.ok) [readAt, seen] = [now(), true];
      const isLive = leftOut ? "This page is live, but for the part that has the focus." : "This page is live.";
      say(answer.ok ? isLive : `The page cannot be renewed now; it was read at ${readAt}.`, !answer.ok);
      again ||= answer.status === 503; // It will be, and perhaps nothing changes any more.
    } catch {
      say(`The server does not answer; this page was read at ${readAt}.`);
    }
    // A stream may commit many batches in a second.
    setTimeout(() => {
      busy = false;
      if (again) {
        again = false;
        refresh();
      }
    }, 1000);
  }

  const events = new EventSource(main.dataset.events);
  // The first event counts as well: the page may have changed since it was rendered.
  for (const name of ["changed", "job", "problem"]) events.addEventListener(name, refresh);
  events.addEventListener("error", () => {
    say(`The server does not answer; this page was read at ${readAt}.`);
  });
  main.addEventListener("focusout", () => {
    if (leftOut) refresh();
  });
  window.addEventListener("pagehide", () => events.close());
})();
