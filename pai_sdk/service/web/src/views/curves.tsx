export function Curves() {
  return <main />;
}
