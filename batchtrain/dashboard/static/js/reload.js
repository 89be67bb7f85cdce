// The browser drops requests when the network changes: a page that lost one of its own files loads again.

addEventListener(
  "error",
  ({ target }) => {
    if (target.matches?.("script, link[rel=stylesheet]")) setTimeout(() => location.reload(), 1000);
  },
  true,
);
