// Tables: sorted by a click on a header, and saved as CSV.

function valueOf(cell) {
  return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
}

function compare(one, other, sign) {
  const values = [valueOf(one), valueOf(other)];
  const missing = values.map(value => value === null || Number.isNaN(value));
  if (missing[0] && missing[1]) {
    const dashes = [one, other].map(cell => cell.textContent.trim() === "–");
    return dashes[0] - dashes[1] || sign * one.textContent.localeCompare(other.textContent, "en", {numeric: true});
  }
  return missing[0] - missing[1] || sign * (values[0] - values[1]);
}

function sortable(table) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    const button = element("button", {type: "button", class: "sort"}, header.textContent);
    button.addEventListener("click", () => {
      const hasNumbers = [...table.tBodies[0].rows].some(row => valueOf(row.cells[column]) !== null);
      const before = header.getAttribute("aria-sort");
      const order = (before || (hasNumbers ? "ascending" : "descending")) === "ascending" ? "descending" : "ascending";
      for (const other of headers) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...table.tBodies[0].rows].sort((a, b) => compare(a.cells[column], b.cells[column], sign));
      table.tBodies[0].append(...rows);
    });
    header.replaceChildren(button);
  });
}

function quoted(text) {
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// A column with numbers is two: the number in full, and the text with its unit and interval.
function csvOf(table) {
  const rows = [...table.tBodies[0].rows];
  const lines = [[]].concat(rows.map(() => []));
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const cells = rows.map(row => row.cells[column]);
    const name = header.textContent;
    if (cells.some(cell => valueOf(cell) !== null)) {
      lines[0].push(name, `${name} (as written)`);
      cells.forEach((cell, i) => lines[i + 1].push(cell.dataset.value ?? "", cell.textContent.trim()));
    } else {
      lines[0].push(name);
      cells.forEach((cell, i) => lines[i + 1].push(cell.textContent.trim()));
    }
  });
  return lines.map(line => line.map(quoted).join(",") + "\n").join("");
}

function saveable(button) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([csvOf(document.getElementById(button.dataset.table))], {type: "text/csv"}));
    element("a", {href: url, download: `${button.dataset.table}.csv`}).click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  });
}
