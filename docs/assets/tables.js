// Long tables are sorted by a click on a heading, or Enter on it, and filtered by what is typed above them.
const LONG = 8

function value(row, column) {
  const text = row.cells[column]?.textContent.trim() ?? ""
  const number = parseFloat(text.replace(/,/g, "").replace("\u2212", "-"))
  return Number.isNaN(number) ? text.toLowerCase() : number
}

function compare(one, other) {
  if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1
  return one < other ? -1 : one > other ? 1 : 0
}

function sort(table, heading, column) {
  // Figures are looked at from the highest on, names from the first on.
  const body = table.tBodies[0], rows = [...body.rows]
  const first = typeof value(rows[0], column) === "number" ? "descending" : "ascending"
  const second = first === "descending" ? "ascending" : "descending"
  const order = heading.getAttribute("aria-sort") === first ? second : first
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort")
  heading.setAttribute("aria-sort", order)
  const sign = order === "ascending" ? 1 : -1
  rows.sort((one, other) => sign * compare(value(one, column), value(other, column)))
  body.append(...rows)
}

function addFilter(table) {
  const field = document.createElement("input")
  field.className = "table-filter"
  field.placeholder = "Filter rows"
  field.setAttribute("aria-label", "Filter rows")
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase()
    for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(wanted)
  })
  const frame = table.closest(".md-typeset__scrollwrap") ?? table
  frame.before(field)
}

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table:not([class])")) {
    if (!table.tHead || table.tBodies[0].rows.length < LONG) continue
    addFilter(table)
    for (const [column, heading] of [...table.tHead.rows[0].cells].entries()) {
      heading.classList.add("sortable")
      heading.tabIndex = 0
      heading.addEventListener("click", () => sort(table, heading, column))
      heading.addEventListener("keydown", event => event.key === "Enter" && sort(table, heading, column))
    }
  }
})
