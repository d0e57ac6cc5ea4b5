// The fragment of the address keeps what is chosen on a saved page, so that a link to it shows the same.
{
  const kept = new URLSearchParams(location.hash.slice(1)), scope = document.querySelector(".whyformer");
  const keep = (key, value, usual) => {
    if (value === usual) kept.delete(key);
    else kept.set(key, value);
    if (location.protocol !== "about:") history.replaceState(null, "", kept.size ? `#${kept}` : location.href.split("#")[0]);
  };
  const follow = (selector, key, usual) => {
    const root = scope.querySelector(selector);
    if (!root) return;
    if (kept.has(key)) root.dataset[key] = kept.get(key);
    new MutationObserver(() => keep(key, root.dataset[key], usual(root))).observe(root, { attributeFilter: [`data-${key}`] });
  };
  follow("[data-what-if]", "removed", () => "");
  follow("[data-table]", "chosen", (root) => `row-${root.dataset.opening}`);
  for (const answer of scope.querySelectorAll("input[name=explained]")) {
    if (answer.value === kept.get("answer")) answer.checked = true;
    answer.addEventListener("change", () => keep("answer", answer.value, "0"));
  }
  addEventListener("hashchange", () => location.reload());
}
