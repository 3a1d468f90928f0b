export { ThreadwayAgent, type ThreadwayAgentConfig } from "./agent.js";
export { ConnectionLostError, RefusedError, type Status, type Token } from "./line.js";
export { type Limits, LIMITS } from "./machine.js";
