// Diagnoses, and objects made from the texts that the native half returns.

/** The findings about a store. */
export interface Diagnosis {
  /** The address, without a password. */
  store: string;
  /** True if no finding is a problem. */
  isHealthy: boolean;
  findings: Finding[];
}

/** One finding, in a {@link Diagnosis}. */
export interface Finding {
  subject: string;
  severity: string;
  observed: string;
  /** Empty if there is nothing to do. */
  advice: string;
}

/** Makes the objects of a JSON text, with names in the style of JavaScript. */
export function parsed<T>(json: string): T {
  return renamed(JSON.parse(json)) as T;
}

function renamed(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(renamed);
  }
  if (typeof value !== 'object' || value === null) {
    return value;
  }
  const name = (key: string): string => key.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [name(key), renamed(item)]));
}
