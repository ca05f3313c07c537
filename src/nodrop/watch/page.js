"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const put = (id, words) => { const e = at(id); if (e.textContent !== words) e.textContent = words; };
  const number = (n) => Math.round(n).toLocaleString("en").replaceAll(",", "\u202f");
  const known = (n, unit) => n === null || n === undefined ? "–" : number(n) + unit;

  const tile = (id, pps, total) => {
    const small = document.createElement("small");
    small.textContent = total === null || total === undefined ? "not known" : `${number(total)} so far`;
    at(id).replaceChildren(known(pps, "/s"), small);
  };

  const points = [];
  const MOST_POINTS = 240, FEWEST_POINTS = 40;
  const draw = () => {
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

  let readAt = null;
  const show = (view) => {
    document.title = `${view.progress} · ${view.name} · nodrop`;
    put("name", view.name);
    put("question", view.question);
    put("state", view.finished ? "finished" : view.goes_on ? "under way" : "no process is writing to this run directory");
    at("progress").value = view.done_ratio ?? 0;
    put("done", view.progress);
    put("left", view.left);
    put("marks", `● ${view.counts.good} without loss · ▼ ${view.counts.loss} with loss · ✗ ${view.counts.failed} failed · ◇ ${view.counts.void} void`);
    put("trial", view.trial ?? (view.over ? "nothing any more" : "between two trials"));
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
