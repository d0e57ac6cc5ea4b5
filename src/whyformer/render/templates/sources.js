// A row is a part of the response, a source one of the prompt. What is chosen of one kind lights up the other.
for (const root of document.querySelectorAll(".whyformer [data-table]:not([data-ready])")) {
  root.dataset.ready = "";
  const { rows, facts, likely } = JSON.parse(root.dataset.table);
  const one = (selector) => root.querySelector(selector);
  const all = (selector) => [...root.querySelectorAll(selector)];
  const TEXT = ".text [data-row], .text [data-source]";
  const numbers = (element, kind) => element.dataset[kind].split(" ").map(Number);
  const elementsOf = (kind) => {
    const groups = new Map();
    for (const element of all(`.text [data-${kind}]`))
      for (const number of numbers(element, kind)) groups.set(number, [...(groups.get(number) ?? []), element]);
    return groups;
  };
  const elements = { row: elementsOf("row"), source: elementsOf("source") };
  const other = { row: "source", source: "row" };
  const whole = rows.length - 1;  // the sum of the other rows, where there are several
  const isSum = ({ kind, number }) => kind === "row" && number === whole && whole > 0;
  const entries = { row: new Map(), source: new Map([...elements.source.keys()].map((source) => [source, []])) };
  rows.forEach((row, number) => {
    entries.row.set(number, row.map(([source, level, share, effect]) => ({ number: source, level, share, effect })));
    if (isSum({ kind: "row", number })) return;
    for (const [source, level, share, effect] of row) entries.source.get(source).push({ number, level, share, effect });
  });
  for (const column of entries.source.values()) column.sort((first, second) => second.share - first.share);

  const shade = (element, level) => {
    element.className = element.className.replace(/\b(for|against)-\d+\b/g, "").trim();
    if (level) element.classList.add(`${level < 0 ? "against" : "for"}-${Math.abs(level)}`);
  };
  const textOf = (kind, number) =>
    elements[kind].get(number).map((element) => element.dataset.label ?? element.textContent).join("").trim();
  const fill = (item, kind, { number, level, share, effect }) => {
    const [name, text, bar, figure] = ["b", "span > span", "em", "small"].map((part) => item.querySelector(part));
    item.dataset.entry = number;
    name.textContent = kind === "source" ? elements.source.get(number)[0].closest("[data-name]").dataset.name : "";
    text.textContent = textOf(kind, number);
    bar.style.width = `${Math.abs(level)}%`;
    shade(bar, level);
    figure.textContent = `${effect ? `${effect} · ` : ""}${share || "<1"}%${level < 0 ? " against" : ""}`;
  };
  const [kind, number] = (root.dataset.chosen ?? "").split("-"), kept = { kind, number: Number(number) };
  const isKnown = ["row", "source"].includes(kind) && entries[kind].has(kept.number);
  let pinned = isKnown ? kept : { kind: "row", number: Number(root.dataset.opening) }, shown;

  const show = (choice) => {
    if (shown && choice.kind === shown.kind && choice.number === shown.number) return;
    shown = choice;
    const { kind, number } = choice, ranked = entries[kind].get(number), items = all(".ranked li");
    for (const element of all(TEXT)) shade(element, 0);
    for (const layer of all("[data-heat]")) layer.hidden = Number(layer.dataset.heat) !== (kind === "row" ? number : whole);
    for (const entry of [...ranked].reverse())  // where several share an element, the strongest has it
      for (const element of elements[other[kind]].get(entry.number)) shade(element, entry.level);
    for (const element of all(".chosen")) element.classList.remove("chosen");
    for (const element of elements[kind].get(number) ?? []) element.classList.add("chosen");
    one(".heading span").textContent = kind === "source" ? "What rests on" : isSum(choice) ? "Sources of the whole response" : "Sources of";
    one(".heading q").textContent = isSum(choice) ? "" : textOf(kind, number);
    items.forEach((item, place) => {
      item.hidden = place >= ranked.length;
      if (!item.hidden) fill(item, other[kind], ranked[place]);
    });
    one(".more").hidden = ranked.length <= items.length;
    one(".more").textContent = `and ${ranked.length - items.length} more`;
    one(".facts").textContent = kind === "row" ? facts[number] : "";
    one(".likely").textContent = kind === "row" ? likely[number] ?? "" : "";
    one(".likely").hidden = !one(".likely").textContent;
  };
  const choiceOf = (element) => {
    const kind = element.dataset.row === undefined ? "source" : "row";
    return { kind, number: numbers(element, kind)[0] };
  };
  const pin = (choice) => {
    show(pinned = choice);
    root.dataset.chosen = `${choice.kind}-${choice.number}`;
    for (const element of all("[aria-pressed]")) element.setAttribute("aria-pressed", element.matches(".chosen"));
  };
  const pinNext = (element) => {
    const choice = choiceOf(element), own = numbers(element, choice.kind);
    const place = pinned.kind === choice.kind ? own.indexOf(pinned.number) : -1;
    pin({ kind: choice.kind, number: own[(place + 1) % own.length] });  // where several share an element, the next of them
  };
  const target = (event) => event.target.closest(TEXT);
  const listed = (item) => elements[other[shown.kind]].get(Number(item.dataset.entry));

  // Tab goes from the response to the prompt, arrow keys go on within one.
  const firsts = [...new Set([...elements.source.values()].map(([first]) => first))];
  const stops = [all(".text [data-row]"), firsts.filter((element) => element.dataset.row === undefined)];
  for (const group of stops) group.forEach((element, place) => {
    element.setAttribute("role", "button");
    element.setAttribute("aria-pressed", "false");
    element.tabIndex = place ? -1 : 0;
  });
  root.addEventListener("mouseover", (event) => show(target(event) ? choiceOf(target(event)) : pinned));
  root.addEventListener("mouseleave", () => show(pinned));
  root.addEventListener("focusin", (event) => {
    if (target(event)?.matches(":focus-visible")) show(choiceOf(target(event)));
  });
  root.addEventListener("click", (event) => {
    const item = event.target.closest(".ranked li");
    if (target(event)) pinNext(target(event));
    else if (item) listed(item)[0].scrollIntoView({ block: "center", behavior: "smooth" });
  });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return pin({ kind: "row", number: whole });
    const group = stops.find((stop) => stop.includes(event.target)) ?? [], place = group.indexOf(event.target);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = group[{ Home: 0, End: group.length - 1 }[event.key] ?? place + step];
    if (next) {
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    } else if (group.length && ["Enter", " "].includes(event.key)) pinNext(event.target);
    else return;
    event.preventDefault();
  });
  for (const item of all(".ranked li")) {
    item.addEventListener("mouseenter", () => listed(item).forEach((element) => element.classList.add("pointed")));
    item.addEventListener("mouseleave", () => all(".pointed").forEach((element) => element.classList.remove("pointed")));
  }
  one(".help").hidden = false;
  pin(pinned);
}
