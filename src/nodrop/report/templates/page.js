"use strict";
(() => {
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // A link to a trial opens it, and whatever it is folded into.
  const openTarget = () => {
    const found = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!found) return;
    for (let e = found; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    found.scrollIntoView();
  };
  addEventListener("hashchange", openTarget);
  openTarget();

  // A part of a figure tells its title in the line below the figure, to pointer and keyboard alike.
  const say = (event) => {
    const said = event.target.closest && event.target.closest(".branch, .hop, .mark, .mark-part");
    if (!said) return;
    let e = said.closest(".scroll");
    for (let up = 0; e && up < 2; up++, e = e.parentElement) {
      const place = e.parentElement.querySelector(":scope > .says");
      if (place) { place.textContent = said.querySelector("title").textContent; return; }
    }
  };
  document.addEventListener("focusin", say);
  document.addEventListener("pointerover", say);

  const text = (cell) => cell.textContent.trim();
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.classList.contains("num") ? null : text(cell);
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });

  const sortable = (table) => {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...body.rows].map((row) => [key(row, column), row]);
        rows.sort(([a], [b]) => a === null ? (b === null ? 0 : 1) : b === null ? -1 : up ? compare(a, b) : compare(b, a));
        body.append(...rows.map(([, row]) => row));
      });
    });
  };

  const copy = async (words, button) => {
    const done = (said) => { const was = button.textContent; button.textContent = said; setTimeout(() => { button.textContent = was; }, 1500); };
    try { await navigator.clipboard.writeText(words); done("Copied"); } catch { done("The browser did not allow it"); }
  };

  // What lies beyond the edge of a wide table is said, and a button leads there.
  const leading = (tools, table) => {
    const frame = table.closest(".scroll");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "beyond";
    tools.append(button);
    const look = () => {
      const edge = frame.getBoundingClientRect().right + 2;
      const hidden = [...table.tHead.rows[0].cells].filter((head) => head.getBoundingClientRect().right > edge).length;
      frame.classList.toggle("cut", frame.scrollWidth > frame.clientWidth + 2);
      frame.classList.toggle("more", hidden > 0);
      button.hidden = !frame.classList.contains("cut");
      button.textContent = hidden ? `${hidden} more ${hidden === 1 ? "column" : "columns"} →` : "← back to the first columns";
    };
    button.addEventListener("click", () => {
      const more = frame.classList.contains("more");
      const first = table.tHead.rows[0].cells[0].offsetWidth;
      frame.scrollTo({ left: more ? frame.scrollLeft + frame.clientWidth - first : 0 });
    });
    frame.addEventListener("scroll", look);
    new ResizeObserver(look).observe(frame);
    look();
  };

  for (const tools of document.querySelectorAll(".tools")) {
    const table = document.getElementById(tools.dataset.for);
    tools.hidden = false;
    sortable(table);
    leading(tools, table);
    const matches = tools.querySelector(".matches");
    tools.querySelector("input")?.addEventListener("input", (event) => {
      const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const found = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => found.includes(word));
        if (!row.hidden) shown++;
      }
      matches.textContent = words.length ? `${shown} of ${table.tBodies[0].rows.length} rows` : "";
    });
    tools.querySelector(".copy").addEventListener("click", (event) => {
      const rows = [table.tHead.rows[0], ...[...table.tBodies[0].rows].filter((row) => !row.hidden)];
      copy(rows.map((row) => [...row.cells].map((cell) => cell.dataset.v ?? text(cell)).join("\t")).join("\n"), event.target);
    });
  }

  const base = document.getElementById("base");
  if (base) {
    const all = JSON.parse(document.getElementById("differences-data").textContent);
    const rows = document.getElementById("differences").tBodies[0].rows;
    base.addEventListener("change", () => {
      all[Number(base.value)].forEach((said, i) => said.forEach((words, j) => { rows[i].cells[j + 1].textContent = words; }));
    });
  }
})();
