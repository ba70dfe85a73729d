// What the theme and the notebooks' outputs leave out for readers with a keyboard or a screen reader.

const NAMES = { ".sidebar-drawer": "All pages", ".toc-drawer": "This page" };
const SCROLLING = "pre, table, mjx-container, .cell_output, .table-wrapper, .output";

function setAll(selector, attribute, value) {
  for (const part of document.querySelectorAll(selector)) part.setAttribute(attribute, value);
}

function nameParts() {
  for (const [selector, name] of Object.entries(NAMES)) setAll(selector, "aria-label", name);
  setAll('p[role="heading"]', "aria-level", "2");
  for (const head of document.querySelectorAll("th")) {
    if (!head.textContent.trim()) head.setAttribute("role", "cell"); // it names nothing
  }
}

// What is wider than its place can be scrolled by keys once it can have the focus.
function reachScrolling() {
  for (const part of document.querySelectorAll(SCROLLING)) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  }
}

document.addEventListener("DOMContentLoaded", async () => {
  nameParts();
  await window.MathJax?.startup?.promise;
  reachScrolling();
  document.body.dataset.ready = "yes";
  addEventListener("resize", reachScrolling);
  document.addEventListener("toggle", reachScrolling, true); // what was folded has no width before
});
