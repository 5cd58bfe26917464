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

  /** Whether what cannot change, or in one direction alone, leaves this part; of a missing value no direction is known.
   *  A value that is never advised may only be kept. */
  function permits(feature, part, own) {
    if (contains(feature, part, own)) return true;
    const {change, never} = feature, isFree = change === "any";
    if (own.fixed || (own.missing && !isFree)) return false;
    if (isFree && part.missing && !never.missing) return true;
    const up = change === "increase";
    if (isRange(feature)) return !part.empty && (isFree || (up ? part.high >= own.number : part.low <= own.number));
    const advised = [...part.values].filter(code => !never.codes.includes(code));
    if (isFree) return advised.length > 0;
    return own.code >= 0 && advised.some(code => up ? code >= own.code : code <= own.code);
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
      const isLimited = own[j].held || feature.never.missing || feature.never.codes.length > 0;
      const keeps = feature.read.map(part => !isLimited || permits(feature, part, own[j]));
      for (let i = 0; i < count; i++) {
        const code = feature.at[i];
        away[i] += isLimited && !keeps[code] ? Infinity : gaps[code];
      }
    });
    const least = away.reduce((a, b) => Math.min(a, b), Infinity);
    return least === Infinity ? -1 : away.findIndex(distance => distance <= least + TIE);
  }

  // --- how it is said ---

  const language = data.language;

  const {categories, positions} = data.plurals, period = positions.length / 2;

  /** Return the place of a number's plural category; a larger number has that of its last digits. */
  function pluralOf(number) {
    const whole = Math.abs(number);
    if (!Number.isInteger(whole)) return categories.indexOf("other");
    return Number(positions[whole < period ? whole : period + whole % period]);
  }

  /** Choose the forms for a number, {loan|loans}, and fill a text, whose places are {named}; {} takes the only value. */
  function fill(frame, values, number = NaN) {
    const chosen = frame.replace(/\{([^{}|]*(?:\|[^{}|]*)+)\}/g, (_, forms) => {
      const all = forms.split("|");
      return all[Math.min(pluralOf(number), all.length - 1)];
    });
    return chosen.replace(/\{(\w*)\}/g, (_, name) => typeof values === "string" ? values : values[name]);
  }

  /** List changes, which may hold commas themselves. */
  function join(items) {
    if (items.length === 1) return items[0];
    return fill(language.changes.last, {first: items.slice(0, -1).join("; "), last: items.at(-1)});
  }

  /** Write a number in full: text as it was entered, times that of the unit, grouped where it is long. */
  function number(text, unit = {times: "1"}) {
    const [mantissa, exponent = "0"] = text.toLowerCase().split("e");
    const [whole, part = ""] = mantissa.replace(/^[+-]/, "").split("."), [times, fraction = ""] = unit.times.split(".");
    let digits = BigInt(whole + part || "0") * BigInt(times + fraction), scale = part.length + fraction.length - Number(exponent);
    if (scale < 0) [digits, scale] = [digits * 10n ** BigInt(-scale), 0];
    const all = String(digits).padStart(scale + 1, "0"), cut = all.length - scale;
    let before = all.slice(0, cut), after = all.slice(cut).replace(/0+$/, "");
    const isMoney = unit.decimals !== undefined;
    if (after && isMoney) after = after.padEnd(unit.decimals, "0");
    if (isMoney || before.length >= 5) before = before.replace(/\B(?=(\d{3})+$)/g, language.numbers.group);
    return (text.startsWith("-") ? "-" : "") + before + (after ? language.numbers.decimal + after : "");
  }

  function dateOf(text) {
    const [day, time] = text.split(/[T ]/), [year, month, date] = day.split("-").map(Number);
    const hours = time?.replace("Z", "+00:00").replace(/^(\d\d:\d\d):00(?=$|[+-])/, "$1") ?? "";
    const values = {day: date, month: language.dates.months[month - 1], year, time: hours};
    return fill(language.dates[hours === "" || /^00:00(?=$|[+-])/.test(hours) ? "day" : "moment"], values);
  }

  /** Return a value as it stands after "instead of". */
  function ownText(feature, own, code) {
    if (feature.kind === "choice") return own.code < 0 ? language.values.other : feature.words[own.code];
    if (feature.kind === "date") return dateOf(own.text);
    const named = feature.named[String(own.number)];
    if (named !== undefined) return named;
    const {unit} = feature, text = number(own.text, unit), words = language.numbers.counts;
    const written = Number((own.number * Number(unit.times)).toPrecision(15));
    if (feature.counted) {
      if (written === 0) return language.numbers.none;
      return words[written] ?? text;
    }
    if (!unit.is_repeated && unit.decimals === undefined && !feature.unsaid[code]) return text;
    const frame = unit[categories[pluralOf(written)]] ?? unit.other;
    return text.startsWith("-") && !frame.startsWith("{}") ? "-" + fill(frame, text.slice(1)) : fill(frame, text);
  }

  /** Return how large a change is, from 0 to 1: a number relative to the larger one, a date to ten years. */
  function sizeOf(feature, part, own) {
    if (!isRange(feature) || own.missing || part.empty) return 1;
    const near = own.number < part.low ? part.low : part.high, away = Math.abs(near - own.number);
    if (feature.kind === "date") return Math.min(1, away / (10 * 365.25 * 24 * 3600));
    const largest = Math.max(Math.abs(near), Math.abs(own.number));
    return largest > 0 ? Math.min(1, away / largest) : 0;
  }

  /** Return the new value beside the person's own; of "angina" and "no angina" the new one alone. */
  const instead = (feature, told, own) =>
    feature.worded && (told.endsWith(` ${own}`) || own.endsWith(` ${told}`)) ? told : fill(language.changes.instead, {new: told, own});

  function changesOf(i, own) {
    const changes = [];
    data.features.forEach((feature, j) => {
      const code = feature.at[i], part = feature.read[code];
      if (contains(feature, part, own[j])) return;
      const told = feature.described[code];
      const text = own[j].missing ? fill(language.changes.own_not_stated, {new: told}) : instead(feature, told, ownText(feature, own[j], code));
      changes.push({name: feature.name, text, size: sizeOf(feature, part, own[j]), chosen: feature.chosen});
    });
    return changes.sort((a, b) => b.size - a.size || (a.name < b.name ? -1 : 1));
  }

  function sentence(i, own) {
    const clause = data.clauses.values[data.clauses.at[i]], changes = changesOf(i, own), said = [];
    const Clause = clause[0].toUpperCase() + clause.slice(1);
    const say = (name, parts, number) => said.push(fill(language.answers[name], {outcome: clause, Outcome: Clause, ...parts}, number));
    const texts = changes.filter(change => change.chosen).map(change => change.text);
    const situation = changes.filter(change => !change.chosen).map(change => change.text);
    const words = language.numbers.words, count = words[texts.length] ?? String(texts.length);
    if (texts.length) say(["", "one", "two"][texts.length] ?? "more", {count, changes: join(texts)}, texts.length);
    else if (!situation.length) say("no_change", {});
    if (situation.length) say(texts.length ? "situation" : "only_situation", {changes: join(situation)});
    const [share] = data.pureness.values[data.pureness.at[i]];
    if (share < 1)
      said.push(fill(language.answers.part_of_combinations, {share: fill(data.percent, number(String(Math.trunc(share * 1000) / 10)))}));
    return said.join(" ");
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
    put(facts, "li", `At least ${few} people of the table fit its ranges and have this outcome` +
      `, and at least ${few} would get it with the other values given here in the place of theirs.`);
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
      const part = feature.read[feature.at[i]], stays = contains(feature, part, own[j]);
      const row = put(body, "tr", "", {role: "row"}), kind = stays ? "stays" : "changes";
      put(row, "th", feature.name, {scope: "row", role: "rowheader"});
      [own[j].text, part.said, stays ? "no" : "yes"].forEach((text, at) =>
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
