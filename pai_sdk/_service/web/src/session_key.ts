// The key of this page: scripts can use it and cannot read it, since it is a `CryptoKey` that browsers do not export.
//
// Each request carries a proof made with it (`TIME.HMAC`). Browsers have such keys for secure contexts only: HTTPS, or
// this machine. By plain HTTP of another machine the key itself is kept in the storage of this origin, and is sent.
const NAME = "pai-ui-key";
const SIGNED_IN = "pai-ui-signed-in"; // when; it tells the other tabs
const crypto = globalThis.crypto?.subtle as SubtleCrypto | undefined;

export let isKept: Promise<void> = Promise.resolve();
let known: Promise<CryptoKey | string | undefined> | undefined;
let clockMs = 0; // how much the clock of the service is ahead of ours

/** What the header of a request has. */
export async function proofFor(method: string, address: string): Promise<string> {
  const key = await (known ??= read());
  if (!key || typeof key === "string") return key || "none";
  const time = Math.round((Date.now() + clockMs) / 1000);
  const signed = `${time} ${method} ${decodeURIComponent(new URL(address, location.href).pathname)}`;
  const bytes = new Uint8Array(await (crypto as SubtleCrypto).sign("HMAC", key, new TextEncoder().encode(signed)));
  return `${time}.${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Whether a request that was refused may be let in now: another tab has signed in, or our clock is wrong. */
export async function isWorthAgain(date: string | null): Promise<boolean> {
  if (date) clockMs = Date.parse(date) - Date.now() || 0;
  await isKept;
  known = undefined;
  return (await (known = read())) !== undefined;
}

/** Uses the key of a new session at once; `isKept` is when it is stored, for the next page and the other tabs. */
export function keep(key: string): void {
  let use: (key: CryptoKey | string) => void;
  known = new Promise((resolve) => (use = resolve));
  isKept = put(key, (sealed) => use(sealed)).then(() => localStorage.setItem(SIGNED_IN, String(Date.now())));
}

/** Forgets the key, also in the other tabs. */
export async function forget(): Promise<void> {
  known = undefined;
  localStorage.removeItem(NAME);
  await stored((keys) => keys.delete(NAME)).catch(() => undefined);
  localStorage.setItem(SIGNED_IN, "");
}

/** Calls back when another tab of this browser has signed in, or out. */
export function onSession(then: (isIn: boolean) => void): void {
  window.addEventListener("storage", (event) => event.key === SIGNED_IN && then(Boolean(event.newValue)));
}

async function put(key: string, onSealed?: (key: CryptoKey | string) => void): Promise<CryptoKey | string> {
  if (!crypto) {
    localStorage.setItem(NAME, key);
    onSealed?.(key);
    return key;
  }
  const sealed = await crypto.importKey("raw", new TextEncoder().encode(key), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  onSealed?.(sealed);
  await stored((keys) => keys.put(sealed, NAME)).catch(() => undefined); // without storage the key lasts as long as this tab
  localStorage.removeItem(NAME);
  return sealed;
}

async function read(): Promise<CryptoKey | string | undefined> {
  const text = localStorage.getItem(NAME); // of an earlier release, or of a context that is not secure
  if (text) return put(text);
  return crypto && ((await stored((keys) => keys.get(NAME)).catch(() => undefined)) as CryptoKey | undefined);
}

function stored(work: (keys: IDBObjectStore) => IDBRequest): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("pai-ui");
    opening.onupgradeneeded = () => opening.result.createObjectStore("keys");
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const change = opening.result.transaction("keys", "readwrite");
      const request = work(change.objectStore("keys"));
      change.onabort = () => reject(change.error);
      change.oncomplete = () => {
        opening.result.close();
        resolve(request.result);
      };
    };
  });
}
