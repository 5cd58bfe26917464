"use strict";
// Finds the entry of the catalogue that is nearest to what is entered. Nothing here asks a network or keeps anything.
(() => {
  const data = JSON.parse(document.getElementById("catalogue").textContent);
  const element = id => document.getElementById(id);
  const count = data.outcomes.at.length, TIE = 1e-9;
  const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?$/i;
  const DATE = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?$/;

  // --- what an entry says of an attribute ---

  const isRange = feature => feature.kind !== "choice";

  /** Return low and high as numbers and as texts, whether missing is inside, and how the whole is said. */
  function rangeOf(part, kind) {
    const [low, high, missing, said] = typeof part === "string" ? [part, part, 0] : part;
    if (low === null) return {empty: true, missing, said: "missing"};
    const text = said || (low === high ? low : `${low}–${high}`) + (missing ? " or missing" : "");
    return {low: Number(low), high: Number(high), lowText: low, highText: high, missing, said: text, isDate: kind === "date"};
  }

  for (const feature of data.features) {
    feature.read = feature.parts.map(part => isRange(feature)
      ? rangeOf(part, feature.kind)
      : {values: new Set(part[0]), missing: part[1], said: part[2]});
  }

  function contains(feature, part, own) {
    if (own.missing) return Boolean(part.missing);
    if (!isRange(feature)) return part.values.has(own.code);
    return !part.empty && part.low <= own.number && own.number <= part.high;
  }

  /** Whether what cannot change, or in one direction alone, leaves this part; of a missing value no direction is known. */
  function permits(feature, part, own) {
    if (own.fixed || own.missing) return contains(feature, part, own);
    const up = feature.change === "increase";
    if (!isRange(feature)) return own.code >= 0 && [...part.values].some(code => up ? code >= own.code : code <= own.code);
    return !part.empty && (up ? part.high >= own.number : part.low <= own.number);
  }

  /** How far a value is from a part: 0 inside; a number in shares of the range; else 1; and what a change counts. */
  function gap(feature, part, own) {
    if (contains(feature, part, own)) return 0;
    if (!isRange(feature) || own.missing || part.empty) return 1 + feature.outside;
    const away = Math.max(part.low - own.number, own.number - part.high);
    return feature.range > 0 ? away / feature.range + feature.outside : 0;
  }

  // --- what is entered ---

  function valueOf(feature, i) {
    const input = element(`value-${i}`), text = input.value.trim();
    const own = {text: text || "not given", missing: text === "", fixed: element(`keep-${i}`)?.checked ?? true};
    own.held = own.fixed || feature.change !== "any";
    if (own.missing) return {...own, wrong: own.held && !feature.read.some(part => part.missing)};
    if (!isRange(feature)) {
      own.code = text === "other" ? -1 : Number(text);
      own.text = input.selectedOptions[0].textContent;
      return own;
    }
    if (!(feature.kind === "date" ? DATE : NUMBER).test(text)) return {...own, wrong: true};
    own.number = feature.kind === "date" ? secondsOf(text) : Number(text);
    return Number.isFinite(own.number) ? own : {...own, wrong: true};
  }

  function secondsOf(text) {
    const stamp = text.replace(" ", "T");
    return Date.parse(/(Z|[+-]\d\d:\d\d)$/.test(stamp) || !stamp.includes("T") ? stamp : stamp + "Z") / 1000;
  }

  // --- the nearest entry ---

  /** Return the place of the nearest entry, the first of those that are equally near; -1 where none is left. */
  function nearest(own, outcome) {
    const away = new Float64Array(count);
    for (let i = 0; i < count; i++)
      away[i] = outcome < 0 || data.outcomes.at[i] === outcome ? data.width.values[data.width.at[i]] : Infinity;
    data.features.forEach((feature, j) => {
      const gaps = feature.read.map(part => gap(feature, part, own[j]));
      const keeps = feature.read.map(part => !own[j].held || permits(feature, part, own[j]));
      for (let i = 0; i < count; i++) {
        const code = feature.at[i];
        if (own[j].held && (code < 0 || !keeps[code])) away[i] = Infinity;
        else if (code >= 0) away[i] += gaps[code];
      }
    });
    const least = away.reduce((a, b) => Math.min(a, b), Infinity);
    return least === Infinity ? -1 : away.findIndex(distance => distance <= least + TIE);
  }

  // --- how it is said ---

  const listed = items => items.length === 1 ? items[0] : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;

  /** Read a number as it is written: digits, and how many of them are behind the point. */
  function decimal(text) {
    const [mantissa, exponent = "0"] = text.toLowerCase().split("e"), [whole, part = ""] = mantissa.split(".");
    let digits = BigInt(whole.replace("+", "").replace("-", "") + part || "0"), scale = part.length - Number(exponent);
    if (mantissa.startsWith("-")) digits = -digits;
    return scale < 0 ? [digits * 10n ** BigInt(-scale), 0] : [digits, scale];
  }

  /** Return how far two numbers are apart, as they are written; null where a number cannot hold that. */
  function apart(one, other) {
    const [a, p] = decimal(one), [b, q] = decimal(other), scale = Math.max(p, q);
    let digits = a * 10n ** BigInt(scale - p) - b * 10n ** BigInt(scale - q);
    if (digits < 0n) digits = -digits;
    if (scale === 0) return String(digits);
    const text = String(digits).padStart(scale + 1, "0");
    const found = `${text.slice(0, -scale)}.${text.slice(-scale)}`.replace(/\.?0+$/, "");
    const [back, places] = decimal(String(Number(found)));
    return back * 10n ** BigInt(Math.max(scale - places, 0)) === digits * 10n ** BigInt(Math.max(places - scale, 0)) ? found : null;
  }

  function change(feature, part, own) {
    const [more, less, equal] = feature.phrase, fill = (phrase, what) =>
      phrase.replace(/\{([^{}|]*)\|([^{}|]*)\}/g, (_, one, many) => what === "1" ? one : many).split("{}").join(what);
    if (isRange(feature) ? part.empty : !part.values.size) return `your ${feature.name.replaceAll("_", " ")} were missing`;
    if (feature.kind === "number" && !part.empty && !part.missing && !own.missing) {
      const below = own.number < part.low, ends = [part.lowText, part.highText];
      const [least, most] = (below ? ends : ends.reverse()).map(end => apart(end, own.text));
      if (least !== null && most !== null) return fill(below ? more : less, least === most ? least : `${least}–${most}`);
    }
    return fill(equal, part.said);
  }

  function sentence(i, own) {
    const changes = [], withheld = [];
    data.features.forEach((feature, j) => {
      const part = feature.read[feature.at[i]];
      if (!part) withheld.push(feature.name.replaceAll("_", " "));
      else if (!contains(feature, part, own[j])) changes.push(change(feature, part, own[j]));
    });
    const clauses = changes.filter(said => said.startsWith("your ")), verbs = changes.filter(said => !clauses.includes(said));
    const remark = withheld.length ? ` (withheld: ${listed(withheld)})` : "";
    return changes.length
      ? `If ${verbs.length ? "you " : ""}${listed([...verbs, ...clauses])}, the outcome would be the desired one${remark}.`
      : `Nothing in these attributes needs to change for the desired outcome${remark}.`;
  }

  // --- the page ---

  function put(parent, tag, text, attributes = {}) {
    const made = document.createElement(tag);
    made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return parent.appendChild(made);
  }

  const percent = share => `${(Math.floor(share * 1000) / 10).toString()} %`;

  function say(text) {
    element("said").textContent = text;
    element("more").replaceChildren();
    delete element("answer").dataset.entry;
  }

  function show(i, own) {
    say(sentence(i, own));
    element("answer").dataset.entry = i;
    const pick = column => column.values[column.at[i]], [share, low, high] = pick(data.pureness), few = data.k;
    const facts = put(element("more"), "ul", "");
    put(facts, "li", `Outcome: ${pick(data.outcomes)}.`);
    put(facts, "li", `${pick(data.people)} people of the table fit its ranges. At least ${few} of them have this outcome` +
      (pick(data.coarse) ? "." : `, and at least ${few} would get it with the other values given here in the place of theirs.`));
    put(facts, "li", low === high
      ? `The model gives this outcome at ${percent(share)} of all combinations of values that fit.`
      : `The model gives this outcome at about ${percent(share)} of the combinations of values that fit ` +
        `(95 % interval: ${percent(low)} to ${percent(high)}).`);
    put(facts, "li", "The model was not asked about you: it may decide otherwise, even if you change all of this.");
    // On a narrow screen rows are set as lists; the roles keep it a table.
    const table = put(put(element("more"), "div", "", {class: "table stacks32"}), "table", "", {role: "table"});
    put(table, "caption", "You and this explanation");
    const head = put(put(table, "thead", "", {role: "rowgroup"}), "tr", "", {role: "row"});
    const body = put(table, "tbody", "", {role: "rowgroup"}), names = ["Attribute", "You", "Explanation", "Changes"];
    for (const name of names) put(head, "th", name, {scope: "col", role: "columnheader"});
    data.features.forEach((feature, j) => {
      const part = feature.read[feature.at[i]], stays = part && contains(feature, part, own[j]);
      const row = put(body, "tr", "", {role: "row"}), kind = part && !stays ? "changes" : "stays";
      put(row, "th", feature.name, {scope: "row", role: "rowheader"});
      [own[j].text, part ? part.said : "withheld", !part ? "not said" : stays ? "no" : "yes"].forEach((text, at) =>
        put(row, "td", text, {role: "cell", "data-label": names[at + 1], ...(at === 2 ? {class: kind} : {})}));
    });
  }

  function find(event) {
    event.preventDefault();
    const own = data.features.map(valueOf), wrong = own.findIndex(value => value.wrong);
    own.forEach((value, i) => mark(i, !value.wrong ? "" : value.missing ? "Needed here, as it cannot change freely."
      : data.features[i].kind === "date" ? "Write a date as 2024-12-31." : "Write a number as 1234.5, with no other signs."));
    if (wrong >= 0) {
      say(`${data.features[wrong].name} ${own[wrong].missing ? "is needed" : "cannot be read as it is entered"}.`);
      element(`value-${wrong}`).focus();
      return;
    }
    const wish = element("wish"), i = nearest(own, wish ? Number(wish.value) : -1);
    if (i >= 0) show(i, own);
    else say("No explanation here leaves everything as it is that you cannot change. Allow more to change" +
      `${wish ? ", or ask for another outcome" : ""}.`);
    if (element("answer").getBoundingClientRect().bottom > innerHeight) element("answer").scrollIntoView();
  }

  function mark(i, problem) {
    element(`wrong-${i}`).textContent = problem;
    element(`value-${i}`).setAttribute("aria-invalid", String(problem !== ""));
  }

  element("form").addEventListener("submit", find);
  element("form").addEventListener("reset", () => {
    say("");
    data.features.forEach((_, i) => mark(i, ""));
  });
  element("form").hidden = false;
})();
