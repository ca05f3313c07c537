"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const put = (id, words) => { const e = at(id); if (e.textContent !== words) e.textContent = words; };
  const number = (n) => Math.round(n).toLocaleString("en");
  const thin = (words) => words.replace(/(\d)X\b/g, "$1\u202f×");
  const known = (n, unit) => n === null || n === undefined ? "–" : number(n) + unit;

  const tile = (id, pps, total) => {
    const small = document.createElement("small");
    small.textContent = total === null || total === undefined ? "not known" : `${number(total)} so far`;
    at(id).replaceChildren(known(pps, "/s"), small);
  };

  const points = [];
  const MOST_POINTS = 240, FEWEST_POINTS = 40;
  const draw = () => {
    at("rates").hidden = points.filter((p) => p.sent !== null).length < 2;
    const high = Math.max(1, ...points.map((p) => Math.max(p.sent ?? 0, p.dropped ?? 0)));
    const steps = Math.max(points.length, FEWEST_POINTS) - 1;
    const line = (name) => {
      let pen = "M";
      return points.map((p, i) => {
        if (p[name] === null) { pen = "M"; return ""; }
        const drawn = `${pen}${(i / steps * 720).toFixed(1)},${(116 - p[name] / high * 110).toFixed(1)}`;
        pen = "L";
        return drawn;
      }).join(" ");
    };
    at("offered-line").setAttribute("d", line("sent"));
    at("dropped-line").setAttribute("d", line("dropped"));
    put("scale", `; the top is ${number(high)}/s`);
  };

  let rows = 0, first = "";
  const ended = (trials) => {
    const body = at("ended");
    if (trials.length < rows || (trials[0] && trials[0].run !== first)) { body.replaceChildren(); rows = 0; }
    first = trials[0] ? trials[0].run : "";
    for (const trial of trials.slice(rows)) {
      const row = document.createElement("tr");
      row.className = `m-${trial.mark}`;
      for (const words of [trial.run, trial.words]) {
        const cell = document.createElement("td");
        cell.textContent = words;
        row.append(cell);
      }
      body.prepend(row);
    }
    rows = trials.length;
  };

  const SIGNS = { good: "●", loss: "▼", failed: "✗", void: "◇" };
  const svg = (name, attributes, words = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = words;
    return made;
  };
  const card = (found) => {
    at("card").hidden = !found;
    if (!found) return;
    put("cell", found.cell ? `· ${found.cell}` : "");
    put("carried", found.carried ? thin(`${found.carried} carried`) : found.no_loss ? thin(`No loss seen at ${found.no_loss}`) : "No load is shown to be carried yet.");
    at("carried").classList.toggle("none", !found.carried);
    put("too-much", found.too_much ? thin(`Too much: ${found.too_much}`) : "");
    put("breaks", [found.breaks, found.sure].filter(Boolean).join(" "));
    // Near the answer, where it is decided; loads far off are counted.
    const ends = [found.carried_pps, found.too_much_pps].filter((pps) => pps !== null);
    const all = found.tried.map((one) => one[0]);
    const near = ends.length ? all.filter((pps) => pps >= Math.min(...ends) * 0.8 && pps <= Math.max(...ends) * 1.25) : all;
    const least = Math.min(...near, ...ends), most = Math.max(...near, ...ends), room = (most - least) * 0.05 || most * 0.03;
    const low = Math.max(0, least - room), high = most + room;
    const x = (pps) => `${Math.min(100, Math.max(0, (pps - low) / (high - low) * 100)).toFixed(2)}%`;
    const parts = [];
    if (found.carried_pps !== null) parts.push(svg("rect", { class: "z-carried", width: x(found.carried_pps), height: "100%" }));
    if (found.too_much_pps !== null) parts.push(svg("rect", { class: "z-lost", x: x(found.too_much_pps), width: "100%", height: "100%" }));
    for (const [pps, mark] of found.tried) if (near.includes(pps)) parts.push(svg("text", { class: mark, x: x(pps), y: "62%" }, SIGNS[mark]));
    at("zones").replaceChildren(...parts);
    const far = all.length - near.length;
    put("range", near.length ? `${number(low)} to ${number(high)} packets/s. Blue: carried. Orange: too much. Between: not known.${far ? ` ${far} ${far === 1 ? "trial lies" : "trials lie"} beyond.` : ""}` : "");
  };

  let readAt = null;
  const show = (view) => {
    document.title = `${view.progress} · ${view.name} · nodrop`;
    put("name", view.name);
    put("question", view.question);
    card(view.so_far);
    put("state", view.finished ? "finished" : view.goes_on ? "under way" : "no process is writing to this run directory");
    at("progress").value = view.done_ratio ?? 0;
    put("done", view.progress);
    put("left", view.left);
    put("marks", `● ${view.counts.good} without loss · ▼ ${view.counts.loss} with loss · ✗ ${view.counts.failed} failed · ◇ ${view.counts.void} void`);
    put("how-far", view.finished ? "Answer" : "So far");
    put("next-step", view.next_step);
    at("next").hidden = !view.next_step;
    at("now").hidden = view.over;
    put("trial", view.trial ?? "between two trials");
    const now = view.reading;
    const offering = now && view.phase === "offer" && now.offering_s !== null;
    put("phase", offering ? `offer, ${now.offering_s.toFixed(1)}${now.intended_s === null ? "" : ` of ${now.intended_s.toFixed(1)}`} s` : view.phase ?? "");
    tile("sent", now && now.sent_pps, now && now.sent_packets);
    tile("captured", now && now.captured_pps, now && now.captured_packets);
    tile("decoded", now && now.decoded_pps, now && now.decoded_packets);
    tile("dropped", now && (now.dropped_packets === 0 ? 0 : now.dropped_pps), now && now.dropped_packets);
    at("dropped-tile").classList.toggle("lossy", Boolean(now && now.dropped_packets));
    const thread = now && now.busiest_thread;
    const name = document.createElement("small");
    name.textContent = thread ? `of one CPU: ${thread.name}` : "not known";
    at("busiest").replaceChildren(thread ? `${Math.round(thread.cpu_ratio * 100)} %` : "–", name);
    if (now && now.mono_ns !== readAt) {
      readAt = now.mono_ns;
      points.push({ sent: now.sent_pps, dropped: now.dropped_pps });
      if (points.length > MOST_POINTS) points.shift();
      draw();
    }
    ended(view.ended);
  };

  const events = new EventSource("events");
  let over = false;
  events.onmessage = (event) => {
    const view = JSON.parse(event.data);
    show(view);
    if (view.over) { over = true; events.close(); }
  };
  events.onerror = () => { if (!over) put("state", "the connection is lost"); };
})();
