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

  // One line of words for whatever is pointed at; a screen reader hears it too.
  const tip = document.createElement("div");
  tip.className = "tip"; tip.hidden = true; tip.setAttribute("role", "status");
  document.body.append(tip);
  const show = (words, x, y) => {
    tip.textContent = words; tip.hidden = false;
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.transform = `translate(${Math.max(4, Math.min(x + 12, innerWidth - w - 4))}px, ${y - h - 14 < 4 ? y + 16 : y - h - 14}px)`;
  };
  const drawn = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [k, v] of Object.entries(attributes)) made.setAttribute(k, v);
    return made;
  };
  const hide = () => { tip.hidden = true; document.querySelectorAll(".ringed").forEach((e) => e.remove()); };
  addEventListener("keydown", (e) => { if (e.key === "Escape") hide(); });

  // Marks: the nearest one to the pointer; the arrow keys step through them; Enter follows its link.
  for (const box of document.querySelectorAll(".points")) {
    const svg = box.querySelector("svg.plot");
    const told = box.dataset.told.split("\n").map((line) => { const [, x, y, to, words] = line.match(/^(\S+) (\S+) (\S+) (.*)$/); return [+x, +y, words, to]; });
    told.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let at = -1;
    const tell = (n) => {
      hide();
      at = n;
      const r = svg.getBoundingClientRect(), [x, y, words] = told[n];
      svg.append(drawn("circle", { cx: `${x / 10}%`, cy: `${y / 10}%`, r: 9, class: "ringed" }));
      show(words, r.left + (x / 1000) * r.width, r.top + (y / 1000) * r.height);
    };
    const go = () => { if (at >= 0 && told[at][3] !== "-") location.hash = told[at][3]; };
    box.addEventListener("pointermove", (e) => {
      const r = svg.getBoundingClientRect();
      let best = -1, near = 28 * 28;
      told.forEach(([x, y], n) => { const d = (r.left + (x / 1000) * r.width - e.clientX) ** 2 + (r.top + (y / 1000) * r.height - e.clientY) ** 2; if (d < near) { near = d; best = n; } });
      if (best < 0) hide(); else if (best !== at || tip.hidden) tell(best);
    });
    box.addEventListener("pointerleave", hide);
    box.addEventListener("blur", hide);
    box.addEventListener("click", go);
    box.addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
      if (step) { e.preventDefault(); tell((at + step + told.length) % told.length); }
      else if (e.key === "Home" || e.key === "End") { e.preventDefault(); tell(e.key === "Home" ? 0 : told.length - 1); }
      else if (e.key === "Enter") go();
    });
  }
  // Over time: one moment through all rows.
  for (const grid of document.querySelectorAll(".chart.times")) {
    const plots = grid.querySelectorAll("svg.plot");
    const clear = () => grid.querySelectorAll(".cross-hair").forEach((line) => line.remove());
    grid.addEventListener("pointermove", (e) => {
      clear();
      const under = e.target.closest(".cell")?.querySelector("svg.plot");
      if (!under) return;
      const r = under.getBoundingClientRect(), part = `${Math.min(1, Math.max(0, (e.clientX - r.left) / r.width)) * 100}%`;
      for (const plot of plots) plot.append(drawn("line", { x1: part, x2: part, y1: 0, y2: "100%", class: "cross-hair" }));
    });
    grid.addEventListener("pointerleave", clear);
  }

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
    new ResizeObserver(look).observe(frame); // once it is laid out: asked now, each table would lay out the page
  };

  for (const button of document.querySelectorAll(".cmd button")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button.previousElementSibling.textContent, button));
  }
  // The rail says where one is.
  const links = new Map([...document.querySelectorAll(".rail nav a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((all) => {
    for (const one of all) if (one.isIntersecting) { links.forEach((a) => a.removeAttribute("aria-current")); links.get(one.target.id)?.setAttribute("aria-current", "true"); }
  }, { rootMargin: "-10% 0px -75% 0px" });
  document.querySelectorAll("main section[id]").forEach((section) => seen.observe(section));

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
