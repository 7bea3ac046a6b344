"""No module imports itself by way of others, imports for types and inside functions included."""

import grimp


def cycles(imports: dict[str, set[str]]) -> set[frozenset[str]]:
    """Returns the sets of modules, of two and more, each of which reaches all others: by Kosaraju's algorithm."""

    def visit(module: str, edges: dict[str, set[str]], seen: set[str], found: list[str]) -> None:
        stack = [(module, iter(edges[module]))]
        seen.add(module)
        while stack:
            here, following = stack[-1]
            for other in following:
                if other not in seen:
                    seen.add(other)
                    stack.append((other, iter(edges[other])))
                    break
            else:
                found.append(here)
                stack.pop()

    seen: set[str] = set()
    finished: list[str] = []
    for module in imports:
        if module not in seen:
            visit(module, imports, seen, finished)
    back: dict[str, set[str]] = {module: set() for module in imports}
    for module, others in imports.items():
        for other in others:
            back[other].add(module)
    seen, components = set(), set()
    for module in reversed(finished):
        if module not in seen:
            component: list[str] = []
            visit(module, back, seen, component)
            components.add(frozenset(component))
    return {component for component in components if len(component) > 1}


def test_cycles_are_found():
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"d"}}
    assert cycles(imports) == {frozenset("abc")}
    assert cycles({"a": {"b"}, "b": set()}) == set()


def test_no_modules_import_each_other():
    graph = grimp.build_graph("headrace", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert cycles(imports) == set()
