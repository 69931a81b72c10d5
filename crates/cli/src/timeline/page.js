'use strict';
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const programs = data.programs, segments = data.segments, end = Math.max(data.end_ns, 1);
const colour = i => data.colours[i % data.colours.length];
const ink = i => data.inks[i % data.inks.length];
const hatched = i => i >= data.colours.length;

// ---- words ---------------------------------------------------------------------------------
function time(ns, digits) {
  const [scale, unit] = ns >= 1e9 || ns === 0 ? [1e9, 's'] : ns >= 1e6 ? [1e6, 'ms'] : ns >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
  const v = ns / scale;
  return v.toFixed(digits ?? (v >= 100 ? 0 : v >= 10 ? 1 : 2)) + ' ' + unit;
}
const ratio = x => x == null ? '–' : x.toFixed(2) + ' ×';
const el = (tag, attrs, ...children) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) e.setAttribute(k, v);
  e.append(...children);
  return e;
};

$('policy').textContent = data.policy;
$('facts').textContent = data.facts.join(' · ');
const slowest = programs.reduce((m, p) => p.slowdown > m ? p.slowdown : m, 0);
const figures = [
  ['Makespan', time(data.makespan_ns), 'time with a program present'],
  ['Programs', String(programs.length), programs.some(p => !p.well) ? programs.filter(p => !p.well).length + ' failed' : 'on ' + data.cpu_list.length + (data.cpu_list.length === 1 ? ' CPU' : ' CPUs')],
];
if (data.antt != null) figures.push(['Mean slowdown', ratio(data.antt), 'ANTT; 1 is as if alone'],
  ['Worst slowdown', ratio(slowest), ''], ['Throughput', data.stp.toFixed(2), 'STP: work done per time alone']);
for (const [name, value, note] of figures)
  $('figures').append(el('div', {}, el('dt', {}, name), el('dd', {}, value), el('dt', {}, note)));

// ---- table ---------------------------------------------------------------------------------
const worst = Math.max(slowest, 1);
$('table').append(el('thead', {}, el('tr', {}, ...['Program', 'Command', 'Arrived', 'Waited', 'Response', 'Alone', 'Slowdown', 'Ended']
  .map((t, i) => el('th', {scope: 'col', class: [0, 1, 7].includes(i) ? 'text' : ''}, t)))));
const body = el('tbody', {});
programs.forEach((p, i) => {
  const swatch = el('span', {class: 'swatch', style: `background:${colour(i)}`});
  const slow = el('td', {}, ratio(p.slowdown));
  if (p.slowdown != null) slow.append(el('span', {class: 'meter', 'aria-hidden': 'true'}, el('i', {style: `width:${100 * p.slowdown / worst}%`})));
  body.append(el('tr', {}, el('th', {scope: 'row'}, swatch, p.app), el('td', {class: 'text command', title: p.command}, p.command),
    el('td', {}, (p.arrived_ns / 1e9).toFixed(2) + ' s'), el('td', {}, p.started_ns == null ? '–' : time(p.started_ns - p.arrived_ns)),
    el('td', {}, p.response_ns == null ? '–' : time(p.response_ns)), el('td', {}, p.alone_ns == null ? '–' : time(p.alone_ns)), slow,
    el('td', {class: p.well ? 'text' : 'text bad'}, p.ending || 'still runs')));
});
$('table').append(body);

// ---- chart ---------------------------------------------------------------------------------
const canvas = $('chart'), tip = $('tip'), ctx = canvas.getContext('2d');
const rows = data.cpu_list.length;
const left = 66, right = 14, marks = 18, gap = rows > 32 ? 1 : 4;
const rowHeight = Math.max(6, Math.min(80, Math.floor((rows > 12 ? 520 : 280) / rows)));
const rowsHeight = rows * (rowHeight + gap), axis = 26, countHeight = 72;
const height = marks + rowsHeight + axis + 10 + countHeight + 6;
let view = [0, end], width = 0, only = null, css = {}, cross = null;
const patterns = new Map();

function hatch(i) {
  if (!patterns.has(i)) {
    const tile = el('canvas', {width: 8, height: 8}), t = tile.getContext('2d');
    t.fillStyle = colour(i); t.fillRect(0, 0, 8, 8);
    t.strokeStyle = ink(i); t.globalAlpha = 0.55; t.lineWidth = 1.6;
    t.beginPath();
    const up = Math.floor(i / data.colours.length) % 2;
    for (const o of [-8, 0, 8]) { t.moveTo(o, up ? 8 : 0); t.lineTo(o + 8, up ? 0 : 8); }
    t.stroke();
    patterns.set(i, ctx.createPattern(tile, 'repeat'));
  }
  return patterns.get(i);
}
const fill = i => hatched(i) ? hatch(i) : colour(i);
const x = t => left + (t - view[0]) / (view[1] - view[0]) * (width - left - right);
const at = px => view[0] + (px - left) / (width - left - right) * (view[1] - view[0]);
const rowTop = r => marks + r * (rowHeight + gap);

// Slots of a segment within [from, to), as long as they are wide enough to be seen: calls draw(from, to, top, height).
function slots(s, from, to, draw) {
  const perPixel = (view[1] - view[0]) / (width - left - right);
  const walk = (k, start, stop, clock, top, part) => {
    if (k === s.shares.length) return draw(start, stop, top, part);
    const share = s.shares[k];
    if (share.by === 'kernel') return walk(k + 1, start, stop, clock, top + part * share.index / share.of, part / share.of);
    const {period_ns: period, offset_ns: offset, slice_ns: slice} = share;
    if (period / perPixel < 10) {
      const of = s.shares.slice(k).reduce(([t, h], sh) => sh.by === 'kernel' ? [t + h * sh.index / sh.of, h / sh.of]
        : [t + h * sh.offset_ns / sh.period_ns, h * sh.slice_ns / sh.period_ns], [top, part]);
      return draw(start, stop, of[0], of[1]);
    }
    // `clock` is what the clock of this turn shows at `start`; it runs while its parent's slot does.
    for (let n = Math.max(0, Math.floor((clock + Math.max(from - start, 0)) / period)); ; n++) {
      const a = start + n * period + offset - clock, b = a + slice;
      if (a >= Math.min(stop, to)) break;
      const first = Math.max(a, start), last = Math.min(b, stop);
      if (last > Math.max(first, from)) walk(k + 1, first, last, n * slice + (first - a), top, part);
    }
  };
  walk(0, s.from_ns, s.to_ns, 0, 0, 1);
}

function label(text, x0, x1, yMid, i, band) {
  ctx.font = `600 ${band < 16 ? 10 : 12}px system-ui, sans-serif`;
  const from = Math.max(x0, left), to = Math.min(x1, width - right), w = ctx.measureText(text).width;
  if (w + 12 > to - from) return;
  ctx.fillStyle = ink(i); ctx.textBaseline = 'middle'; ctx.textAlign = 'left';
  if (hatched(i)) { ctx.save(); ctx.fillStyle = colour(i); ctx.fillRect(from + 4, yMid - 8, w + 6, 16); ctx.restore(); ctx.fillStyle = ink(i); }
  ctx.fillText(text, from + 7, yMid + 0.5);
}

function ticks() {
  const raw = (view[1] - view[0]) / Math.max(2, (width - left - right) / 110);
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map(m => m * power).find(s => s >= raw);
}

function draw() {
  const ratio = window.devicePixelRatio || 1;
  width = canvas.clientWidth;
  canvas.style.height = height + 'px';
  canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  const style = getComputedStyle(document.documentElement);
  for (const name of ['card', 'text', 'soft', 'line', 'lane', 'accent']) css[name] = style.getPropertyValue('--' + name).trim();
  ctx.clearRect(0, 0, width, height);

  const every = Math.ceil(15 / (rowHeight + gap));
  ctx.font = '12px system-ui, sans-serif'; ctx.textBaseline = 'middle';
  for (let r = 0; r < rows; r++) {
    ctx.fillStyle = css.lane; ctx.fillRect(left, rowTop(r), width - left - right, rowHeight);
    ctx.fillStyle = css.soft; ctx.textAlign = 'right';
    if (r % every === 0) ctx.fillText('CPU ' + data.cpu_list[r], left - 10, rowTop(r) + rowHeight / 2 + 0.5);
  }

  ctx.save();
  ctx.beginPath(); ctx.rect(left, 0, width - left - right, height); ctx.clip();
  for (const s of segments) {
    if (s.to_ns <= view[0] || s.from_ns >= view[1]) continue;
    ctx.globalAlpha = only == null || only === s.program ? 1 : 0.13;
    ctx.fillStyle = fill(s.program);
    const bands = [];
    slots(s, view[0], view[1], (a, b, top, part) => {
      const x0 = x(Math.max(a, view[0])), x1 = x(Math.min(b, view[1]));
      for (const r of s.rows) {
        const y = rowTop(r) + top * rowHeight, h = Math.max(part * rowHeight, 1);
        ctx.fillRect(x0, y, Math.max(x1 - x0 - (x1 - x0 > 4 ? 1 : 0), 0.6), h);
        if (x1 - x0 > 30 && h >= 12) bands.push([x0, x1, y + h / 2, h]);
      }
    });
    for (const [x0, x1, y, h] of bands) label(s.app, x0, x1, y, s.program, h);
  }
  ctx.globalAlpha = 1;

  // Arrivals point down into the picture, ends up out of it.
  programs.forEach((p, i) => {
    const mark = (t, down) => {
      if (t == null || t < view[0] || t > view[1]) return;
      const px = Math.min(Math.max(x(t), left + 5), width - right - 5), y = marks - 4;
      ctx.fillStyle = colour(i); ctx.globalAlpha = only == null || only === i ? 1 : 0.13;
      ctx.beginPath();
      if (down) { ctx.moveTo(px - 5, y - 9); ctx.lineTo(px + 5, y - 9); ctx.lineTo(px, y); }
      else { ctx.moveTo(px - 5, y); ctx.lineTo(px + 5, y); ctx.lineTo(px, y - 9); }
      ctx.fill(); ctx.globalAlpha = 1;
    };
    mark(p.arrived_ns, true); mark(p.ended_ns, false);
  });

  const step = ticks(), base = marks + rowsHeight;
  ctx.textAlign = 'center'; ctx.textBaseline = 'top'; ctx.font = '12px system-ui, sans-serif';
  // All ticks in the unit of the step, so that they can be read against one another.
  const [scale, unit] = view[1] >= 1e9 && step >= 1e7 ? [1e9, 's'] : step >= 1e5 ? [1e6, 'ms'] : [1e3, 'µs'];
  const digits = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
  for (let t = Math.ceil(view[0] / step) * step; t <= view[1]; t += step) {
    ctx.fillStyle = css.line; ctx.fillRect(x(t), base, 1, 6);
    ctx.fillStyle = css.soft;
    const text = (t / scale).toFixed(digits) + ' ' + unit, w = ctx.measureText(text).width / 2;
    ctx.fillText(text, Math.min(Math.max(x(t), left + w), width - right - w), base + 9);
  }

  const top = base + axis + 10, most = Math.max(1, ...data.present.map(p => p[1]));
  const y = n => top + countHeight - n / most * (countHeight - 14);
  for (const [k, alpha] of [[1, 0.22], [2, 0.55]]) {
    ctx.beginPath(); ctx.moveTo(x(0), y(0));
    data.present.forEach((p, i) => {
      ctx.lineTo(x(p[0]), y(i ? data.present[i - 1][k] : 0)); ctx.lineTo(x(p[0]), y(p[k]));
    });
    ctx.lineTo(x(end), y(0));
    ctx.globalAlpha = alpha; ctx.fillStyle = css.accent; ctx.fill(); ctx.globalAlpha = 1;
  }
  ctx.fillStyle = css.line; ctx.fillRect(left, y(0), width - left - right, 1);
  ctx.restore();
  ctx.fillStyle = css.soft; ctx.textAlign = 'right'; ctx.textBaseline = 'middle';
  ctx.fillText('present', left - 10, (y(0) + y(most)) / 2); ctx.fillText('0', left - 10, y(0)); ctx.fillText(String(most), left - 10, y(most));

  if (cross != null) { ctx.globalAlpha = 0.5; ctx.fillStyle = css.text; ctx.fillRect(cross, marks, 1, rowsHeight); ctx.globalAlpha = 1; }
}

// ---- moving about --------------------------------------------------------------------------
const shortest = 1e5;
function show(from, to) {
  const span = Math.min(end, Math.max(shortest, to - from));
  from = Math.max(0, Math.min(end - span, from));
  view = [from, from + span];
  hide(); draw();
}
function zoom(factor, centre = (view[0] + view[1]) / 2) { show(centre - (centre - view[0]) * factor, centre + (view[1] - centre) * factor); }
canvas.addEventListener('wheel', e => {
  if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
    const d = (e.deltaX || e.deltaY) / (width - left - right) * (view[1] - view[0]);
    show(view[0] + d, view[1] + d);
  } else zoom(Math.exp(e.deltaY * 0.0016), at(e.offsetX));
  e.preventDefault();
}, {passive: false});
let drag = null;
canvas.addEventListener('pointerdown', e => { drag = [e.clientX, ...view]; canvas.setPointerCapture(e.pointerId); canvas.classList.add('dragging'); });
canvas.addEventListener('pointerup', () => { drag = null; canvas.classList.remove('dragging'); });
canvas.addEventListener('pointermove', e => {
  if (drag) {
    const d = (drag[0] - e.clientX) / (width - left - right) * (drag[2] - drag[1]);
    show(drag[1] + d, drag[2] + d);
  } else hover(e.offsetX, e.offsetY);
});
canvas.addEventListener('pointerleave', () => { if (!drag) hide(); });
canvas.addEventListener('keydown', e => {
  const span = view[1] - view[0];
  const act = {ArrowLeft: () => show(view[0] - span / 5, view[1] - span / 5), ArrowRight: () => show(view[0] + span / 5, view[1] + span / 5),
    '+': () => zoom(0.6), '=': () => zoom(0.6), '-': () => zoom(1 / 0.6), 0: () => show(0, end), Escape: hide}[e.key];
  if (act) { act(); e.preventDefault(); }
});
$('in').onclick = () => zoom(0.5);
$('out').onclick = () => zoom(2);
$('all').onclick = () => show(0, end);
const turning = segments.find(s => s.shares.some(h => h.by === 'turn'));
$('slots').hidden = !turning;
$('slots').onclick = () => {
  const period = Math.max(...turning.shares.filter(h => h.by === 'turn').map(h => h.period_ns));
  const centre = turning.from_ns <= (view[0] + view[1]) / 2 && (view[0] + view[1]) / 2 < turning.to_ns ? (view[0] + view[1]) / 2 : turning.from_ns + 6 * period;
  show(centre - 6 * period, centre + 6 * period);
};

// ---- hover ---------------------------------------------------------------------------------
function hide() { tip.hidden = true; if (cross != null) { cross = null; draw(); } }
function hover(px, py) {
  const row = Math.floor((py - marks) / (rowHeight + gap));
  if (px < left || px > width - right || row < 0 || row >= rows) return hide();
  const t = at(px), f = (py - rowTop(row)) / rowHeight;
  let hit = null, near = null;
  for (const s of segments) {
    if (t < s.from_ns || t >= s.to_ns || !s.rows.includes(row)) continue;
    near ??= s;
    slots(s, t, t + 1, (a, b, top, part) => { if (a <= t && t < b && f >= top && f <= top + part) hit = s; });
  }
  const s = hit || near;
  cross = px; draw();
  tip.replaceChildren();
  if (!s) tip.append(el('b', {}, 'idle'), el('br'), el('span', {}, `CPU ${data.cpu_list[row]} at ${time(t)}`));
  else {
    const turn = s.shares.filter(h => h.by === 'turn'), share = turn.reduce((a, h) => a * h.slice_ns / h.period_ns, 1);
    tip.append(el('span', {class: 'swatch', style: `background:${colour(s.program)}`}), el('b', {}, s.app),
      ` on CPUs ${s.cpus}, ${s.threads} ${s.threads === 1 ? 'thread' : 'threads'}`, el('br'),
      el('span', {}, `${time(s.from_ns)} to ${time(s.to_ns)}, pointer at ${time(t, 3)}`));
    if (turn.length) tip.append(el('br'), el('span', {}, `in turn with ${s.in_turn_with.join(', ')}: ${turn.map(h => time(h.slice_ns)).join(' of ')} each time, ${(100 * share).toFixed(0)}% of the time` + (turn.at(-1).strict ? '' : '; others fill what it leaves idle')));
    if (s.shares.some(h => h.by === 'kernel')) tip.append(el('br'), el('span', {}, 'shared, left to the kernel'));
  }
  tip.hidden = false;
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(0, px + 16 + w > width ? px - w - 16 : px + 16) + 'px';
  tip.style.top = Math.max(0, py + 16 + h > height ? py - h - 12 : py + 16) + 'px';
}

// ---- legend --------------------------------------------------------------------------------
programs.forEach((p, i) => {
  const swatch = el('canvas', {width: 16, height: 16, 'aria-hidden': 'true'}), c = swatch.getContext('2d');
  c.fillStyle = fill(i); c.fillRect(0, 0, 16, 16);
  const button = el('button', {'aria-pressed': 'false', title: 'Show only ' + p.app}, swatch, p.app);
  button.onclick = () => {
    only = only === i ? null : i;
    document.querySelectorAll('#legend button').forEach((b, j) => b.setAttribute('aria-pressed', String(only === j)));
    draw();
  };
  $('legend').append(el('li', {}, button));
});
canvas.setAttribute('aria-label', `Timeline of ${programs.length} programs on ${rows} CPUs over ${time(end)}. The table below holds the figures.`);
new ResizeObserver(draw).observe(canvas.parentElement);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
// A link can point at a moment: #from-to in milliseconds.
const asked = /^#([\d.]+)-([\d.]+)$/.exec(location.hash);
if (asked) show(asked[1] * 1e6, asked[2] * 1e6); else draw();
})();
