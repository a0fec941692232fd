export function List() {
  return <main />;
}
