// Values as people read them.

/** A 64-digit node id with its middle left out. */
export const short = (text) => String(text ?? "").replace(/\b(tvm(?:ps)?_[0-9a-f]{4})[0-9a-f]{60}(_[a-z])\b/g, "$1…$2");

export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds) % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function ago(time, now = Date.now()) {
  if (!time) return "";
  const seconds = Math.max(0, (now - Date.parse(time)) / 1000);
  if (seconds < 45) return "just now";
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min ago`;
  const hours = Math.round(minutes / 60);
  return hours < 36 ? `${hours} h ago` : `${Math.round(hours / 24)} d ago`;
}

export const moment = (time) =>
  time ? new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" }) : "";

const dayOf = (seconds) =>
  new Date(seconds * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });

/** Times in seconds since 1970 as those of a clock; with the day if there is more than one. */
export function clocks(times) {
  const several = times.length > 0 && dayOf(times[0]) !== dayOf(times[times.length - 1]);
  return times.map((each) => {
    const day = several ? `${dayOf(each).replace(/ \d+$/, "")} ` : "";
    return day + new Date(each * 1000).toLocaleTimeString("en-GB");
  });
}

export function bytes(count) {
  if (count < 1024) return `${count} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = count,
    unit = -1;
  do {
    value /= 1024;
    unit += 1;
  } while (value >= 1024 && unit < units.length - 1);
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function number(value) {
  if (value === null || value === undefined) return "";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  return String(Number(value.toPrecision(4)));
}

/** An amount: with two decimals, and small ones with two digits. */
export function money(amount, currency) {
  const cents = { minimumFractionDigits: 2, maximumFractionDigits: 2 };
  const text = amount >= 0.1 || !amount ? amount.toLocaleString("en-US", cents) : Number(amount.toPrecision(2));
  return `${text} ${currency}`;
}

export const count = (value) => (value ?? 0).toLocaleString("en-US");

export const plural = (value, word, words = `${word}s`) => `${count(value)} ${value === 1 ? word : words}`;

/** Seconds that something lasted, or has lasted until now. */
export const lasted = (start, end) =>
  start ? ((end ? Date.parse(end) : Date.now()) - Date.parse(start)) / 1000 : null;
