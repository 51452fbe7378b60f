// Values of a run beside their forecasts, as charts of uPlot: drag to zoom, double click to see all again.
(() => {
  "use strict";
  const place = document.getElementById("zoom");
  if (!place || !window.uPlot) return;
  const { x, isTime, level, targets } = JSON.parse(document.getElementById("zoom-data").textContent);
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const digits = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(4))));
  const axis = { stroke: style("--soft"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false } };
  // Marks of the time: the clock, with seconds where minutes would repeat, and below it the day where it changes.
  const text = (seconds) => new Date(seconds * 1e3).toISOString();
  const end = isTime && x.length > 1 && x[1] - x[0] < 60 ? 19 : 16;
  const marks = (plot, splits) => {
    let day = null;
    const until = splits.length > 1 && splits[1] - splits[0] < 60 ? 19 : 16;
    return splits.map((at) => {
      const today = text(at).slice(0, 10), clock = text(at).slice(11, until);
      const mark = today === day ? clock : `${clock}\n${today}`;
      day = today;
      return mark;
    });
  };
  // Drag over one chart to zoom into all of them.
  const together = uPlot.sync("targets");
  let charts = [];
  charts = targets.map(({ name, value, mean, lower, upper }) => {
    const show = (plot, number) => digits(number);
    // Values and means decide what is seen: the wide intervals of the first rows must not flatten them.
    const seen = [...value, ...mean].filter((each) => each !== null);
    const least = Math.min(...seen), most = Math.max(...seen), room = 0.75 * (most - least || Math.abs(most) || 1);
    const range = (plot, low, high) => uPlot.rangeNum(Math.max(low ?? 0, least - room), Math.min(high ?? 1, most + room), 0.06, true);
    const options = {
      title: name, width: 600, height: 210, scales: { x: { time: isTime }, y: { range } }, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "UTC"),
      cursor: { sync: { key: together.key, setSeries: false } },
      hooks: { setScale: [(plot, key) => key === "x" && follow(plot)] },
      axes: [isTime ? { ...axis, space: 70, values: marks } : axis, { ...axis, size: 64 }],
      series: [
        isTime ? { label: "time", value: (plot, at) => (at === null ? "–" : text(at).slice(0, end).replace("T", " ")) } : { label: "row" },
        { label: "upper", value: show, stroke: "transparent", points: { show: false } },
        // One entry of the legend for both ends.
        { label: `${level} interval`, value: (plot, low, _, at) => (low === null || at === null ? "–" : `${digits(low)} to ${digits(plot.data[1][at])}`),
          stroke: "transparent", points: { show: false } },
        { label: "forecast", value: show, stroke: style("--accent"), width: 1.5, points: { show: false } },
        { label: "value", value: show, stroke: style("--text"), width: 0.5, points: { show: true, size: 3, fill: style("--text") } },
      ],
      bands: [{ series: [1, 2], fill: `${style("--accent")}38` }],
    };
    const holder = document.createElement("div");
    place.append(holder);
    return new uPlot(options, [x, upper, lower, mean, value], holder);
  });
  let busy = false;
  function follow(moved) {
    if (busy) return;
    busy = true;
    const { min, max } = moved.scales.x;
    for (const chart of charts) if (chart !== moved) chart.setScale("x", { min, max });
    busy = false;
  }
  const fit = () => { for (const chart of charts) chart.setSize({ width: Math.max(280, place.clientWidth), height: 210 }); };
  place.hidden = false;
  place.setAttribute("aria-label", `values beside their forecasts with ${level} intervals`);
  document.querySelector("#lookback .frame").hidden = true;
  new ResizeObserver(fit).observe(place);
  fit();
})();
