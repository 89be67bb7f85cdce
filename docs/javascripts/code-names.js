// The theme gives every block of code a landmark of the same name; a screen reader needs different names.
const named = () => {
  for (const [number, nav] of document.querySelectorAll(".md-code__nav").entries()) {
    nav.setAttribute("aria-label", `Code ${number + 1}`);
  }
};
new MutationObserver(named).observe(document.documentElement, { childList: true, subtree: true });
