// Prompts for the agents of `threadway demo`. They are found by the agents' descriptions, since graphs of other servers have
// the same names.

const STARTERS = {
  "thinks, calls two tools at once, and answers": ["Where is it warm?", "What can you do?"],
  "asks before it sends an email and deletes a file": ["Clean up"],
  "says some words, then fails": ["Try it"],
  "reports on a service; runs by itself every 20 s": ["How is the service?"],
};

export const startersOf = (description) => STARTERS[description] ?? [];
