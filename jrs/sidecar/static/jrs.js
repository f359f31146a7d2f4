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
      if (fresh) swap(fresh);
      const isLive = leftOut ? "This page is live, but for the part that has the focus." : "This page is live.";
      live.textContent = answer.ok ? isLive : "The page cannot be renewed now.";
      again ||= answer.status === 503; // It will be, and perhaps nothing changes any more.
    } catch {
      live.textContent = "The server does not answer; this page may be old.";
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
    live.textContent = "The server does not answer; this page may be old.";
  });
  main.addEventListener("focusout", () => {
    if (leftOut) refresh();
  });
  window.addEventListener("pagehide", () => events.close());
})();
