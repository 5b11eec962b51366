"""The look of the HTML page. Everything is in it: no fonts, pictures or styles come from elsewhere."""

# Contrast of text is at least 4.5 to 1 in both schemes. Pictures keep a white ground in the dark one.
STYLE = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --text: #1c1e21; --quiet: #5a6068; --line: #d7dade; --band: #f4f5f7; --link: #0b5cad;
  --worse: #a33a00; --worse-ground: #fdeee4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #16181b; --text: #e6e7e9; --quiet: #a5abb3; --line: #3a3f45; --band: #212429; --link: #7db8f5;
    --worse: #ffb38a; --worse-ground: #3a2417;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 1rem 1.25rem 4rem; max-width: 80rem; background: var(--ground); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: 1.9rem; line-height: 1.2; margin: 1.2rem 0 .8rem; overflow-wrap: anywhere; }
h2 {
  font-size: 1.4rem; margin: 3rem 0 .6rem; padding-top: .6rem; border-top: 1px solid var(--line);
  overflow-wrap: anywhere;
}
h3 { font-size: 1.08rem; margin: 1.8rem 0 .5rem; overflow-wrap: anywhere; }
p { max-width: 46rem; margin: .7rem 0; overflow-wrap: anywhere; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--ground); padding: .3rem .6rem; }
nav ol {
  display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; list-style: none; margin: 0; padding: .6rem 0;
  border-bottom: 1px solid var(--line);
}
nav a { display: inline-block; padding: .25rem 0; }
pre {
  overflow-x: auto; background: var(--band); border: 1px solid var(--line); border-radius: 6px;
  padding: .6rem .8rem;
}
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .92em; }
details { border: 1px solid var(--line); border-radius: 6px; padding: .45rem .8rem; margin: .5rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
dl { display: flex; flex-wrap: wrap; gap: .25rem 1.2rem; margin: .5rem 0; font-size: .92rem; }
dl div { max-width: 100%; overflow-wrap: anywhere; }
dt, dd { display: inline; margin: 0; }
dt { color: var(--quiet); }
dt::after { content: ":"; }
.key, .missing, figcaption { color: var(--quiet); font-size: .92rem; }
.table {
  overflow: auto; max-height: 85vh; border: 1px solid var(--line); border-radius: 6px; margin: .6rem 0;
}
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: .85rem; }
th, td { padding: .35rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
tbody tr:last-child td { border-bottom: 0; }
thead th { position: sticky; top: 0; background: var(--band); font-weight: 600; vertical-align: bottom; }
td.short { min-width: 7rem; }
td.long { min-width: 17rem; overflow-wrap: anywhere; }
tbody tr:nth-child(even) td { background: color-mix(in srgb, var(--band) 55%, transparent); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.worse, tbody tr:nth-child(even) td.worse { background: var(--worse-ground); font-weight: 600; }
.mark { color: var(--worse); font-size: .8em; }
.paper { color: var(--quiet); font-weight: 400; }
.paper, .whole { white-space: nowrap; }
figure { margin: 1.4rem 0; }
img { display: block; max-width: 100%; height: auto; background: #ffffff; border-radius: 6px; }
figcaption { margin-top: .35rem; max-width: 46rem; }
@media (max-width: 40rem) {
  body { padding: .6rem .8rem 3rem; }
  h1 { font-size: 1.5rem; }
  nav a { padding: .45rem 0; }
}
@media print {
  :root { color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  nav, .skip { display: none; }
  .table { overflow: visible; max-height: none; border: 0; }
  table { font-size: 7.5pt; }
  thead { display: table-header-group; }
  thead th { position: static; white-space: normal; }
  tr, figure, pre { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  a { color: inherit; text-decoration: none; }
}
"""
