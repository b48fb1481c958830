// Offsets: the server counts code points, the browser UTF-16 code units.

/** Convert in both directions. */
export function placesIn(text) {
  if (!/[\ud800-\udbff]/.test(text)) return { here: (place) => place, there: (place) => place };
  const doubled = Array.from(text.matchAll(/[\ud800-\udbff][\udc00-\udfff]/g), (found) => found.index);
  const before = (isBefore) => {
    let low = 0;
    let high = doubled.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isBefore(doubled[middle], middle)) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return {
    here: (place) => place + before((index, number) => index - number < place),
    there: (place) => place - before((index) => index < place),
  };
}
