/**
 * Waits until `isDone()`, or `isOver()`, or for a time. `waiting` has the functions that are called when something has come.
 * Returns whether it is done.
 */
export async function waitUntil(isDone, isOver, waiting, ms) {
  const end = performance.now() + ms;
  while (!isDone()) {
    const left = end - performance.now();
    if (isOver() || left <= 0) return isDone();
    await new Promise((resolve) => {
      const late = setTimeout(resolve, left);
      waiting.add(() => {
        clearTimeout(late);
        resolve();
      });
    });
  }
  return true;
}
