// The LangGraph servers that servers.py has started, each with the threadway in front of it, and what the tests must know of it.

/**
 * `software`: which server it is. `graphs`: which of the two projects with the tests' graphs the server runs. `asking`: the status of a run that has stopped at
 * a question. `hidesReasons`: the stream of a failed run names the exception only. `hidesAsUnknown`: the server answers about another tenant's
 * thread as if it did not exist, not with 404. `forbidden`: its status for a key that the project's `auth` refuses with 403. `needsWholeCharacters`: it fails a run whose graph sends half a surrogate pair, and
 * writes U+FFFD for NUL. `spare`: how to start another server, which a test may kill.
 */
export const SERVERS = [
  { name: "Python", software: "Python", graphs: "Python", variable: "", asking: "success" },
  { name: "JavaScript", software: "JavaScript", graphs: "JavaScript", variable: "_JS", asking: "success" },
  { name: "Python-Node", software: "Python", graphs: "JavaScript", variable: "_PYTHON_JS", asking: "success", needsWholeCharacters: true },
  { name: "aegra", software: "aegra", graphs: "Python", variable: "_AEGRA", asking: "interrupted", hidesReasons: true, hidesAsUnknown: true, forbidden: 401 },
]
  .map(({ variable, ...server }) => ({
    forbidden: 403,
    ...server,
    langgraph: process.env[`LANGGRAPH${variable}_URL`],
    threadway: process.env[`THREADWAY${variable}_URL`],
    spare: process.env[`LANGGRAPH${variable}_SPARE`],
  }))
  .filter(({ langgraph }) => langgraph);

/** What clients see of an exception. */
export const reasonOf = (server, exception, message) => (server.hidesReasons ? `${exception}: execution failed` : message);

/** The request that started a run, from the run's record. aegra's records have its members themselves. */
export const requestOf = (record) => record.kwargs ?? record;

/** A server with the graphs of the Python project, which are more than those of the JavaScript project. */
export const PYTHON = SERVERS.find(({ graphs }) => graphs === "Python");
