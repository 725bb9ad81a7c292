"""Our own prompts about code: functions to write, and functions to change."""

from __future__ import annotations

from random import Random

from specdec_lab.training.recipes import Recipe

TASKS = {  # name and arguments: what it does
    "count_vowels(text)": "counts the vowels in a string",
    "is_palindrome(text)": "tells whether a string reads the same backwards",
    "fibonacci(n)": "returns the first n Fibonacci numbers as a list",
    "gcd(a, b)": "computes the greatest common divisor of two integers",
    "flatten(items)": "flattens a list of lists of any depth",
    "word_frequencies(text)": "counts how often each word occurs in a text",
    "is_prime(n)": "tells whether a number is prime",
    "primes_below(limit)": "lists all primes below a limit with a sieve",
    "binary_search(items, goal)": "finds the place of a value in a sorted list",
    "bubble_sort(items)": "sorts a list with bubble sort",
    "merge_sort(items)": "sorts a list with merge sort",
    "quick_sort(items)": "sorts a list with quick sort",
    "factorial(n)": "computes the factorial of n without recursion",
    "transpose(matrix)": "transposes a matrix given as a list of rows",
    "multiply(a, b)": "multiplies two matrices",
    "remove_duplicates(items)": "removes duplicates and keeps the order",
    "rotate(items, k)": "rotates a list by k places",
    "chunks(items, size)": "splits a list into pieces of equal size",
    "caesar(text, shift)": "encrypts a text with the Caesar cipher",
    "to_roman(number)": "converts a number to Roman numerals",
    "from_roman(text)": "converts Roman numerals to a number",
    "to_binary(number)": "writes a number in base two without bin()",
    "celsius_to_fahrenheit(degrees)": "converts a temperature",
    "leap_year(year)": "tells whether a year is a leap year",
    "days_between(start, end)": "counts the days between two dates",
    "read_json(path)": "reads a JSON file and returns an empty dict if it is missing",
    "longest_word(sentence)": "returns the longest word of a sentence",
    "common_prefix(words)": "finds the longest common prefix of several words",
    "anagrams(words)": "groups words that are anagrams of each other",
    "balanced(text)": "checks whether brackets are balanced",
    "second_largest(numbers)": "returns the second largest number",
    "moving_average(values, width)": "computes a moving average",
    "standard_deviation(values)": "computes the standard deviation of some values",
    "dot(a, b)": "computes the dot product of two vectors",
    "invert(mapping)": "swaps keys and values of a dict",
    "deep_get(mapping, path)": "looks up a dotted path in nested dicts",
    "title_case(text)": "capitalises every word but small ones such as 'of'",
    "levenshtein(a, b)": "computes the edit distance of two strings",
    "hanoi(n)": "lists the moves that solve the towers of Hanoi",
    "permutations(items)": "lists all orders of a list without itertools",
    "power_set(items)": "lists all subsets of a list",
    "breadth_first(graph, start)": "walks a graph breadth first",
    "depth_first(graph, start)": "walks a graph depth first with a stack",
    "shortest_path(graph, start, goal)": "finds a shortest path in a graph without weights",
    "topological_order(graph)": "orders the nodes of a directed graph without cycles",
    "slugify(title)": "makes a URL slug of a title",
    "parse_query(url)": "returns the query parameters of a URL as a dict",
    "mask_email(address)": "hides most of an e-mail address",
    "valid_password(text)": "checks length, digits and capital letters of a password",
    "human_size(num_bytes)": "writes a number of bytes with a unit such as kB or MB",
    "retry(action, times)": "calls a function again when it raises, up to so many times",
    "memoize(function)": "is a decorator that remembers results",
    "timed(function)": "is a decorator that prints how long a call took",
    "compound_interest(amount, rate, years)": "computes an amount after compound interest",
    "bmi(weight, height)": "computes the body mass index and names its range",
    "dice(n, sides)": "rolls n dice and returns the sum",
    "pascal(n)": "returns n rows of Pascal's triangle",
    "collatz(n)": "lists the Collatz sequence of a number",
    "digits_sum(n)": "adds the digits of a number",
    "hamming(a, b)": "counts the places where two strings differ",
    "run_length(text)": "compresses a text with run lengths",
    "expand(text)": "undoes a run length compression such as a3b2",
    "zip_dicts(a, b)": "merges two dicts and adds the values of common keys",
    "latest(files)": "returns the file that was changed last",
    "tail(path, n)": "returns the last n lines of a file",
    "tree(folder)": "prints a folder and its files as a tree",
    "total_by(rows, key)": "adds the amounts of rows with the same key",
}
CLASSES = (
    *("Stack", "Queue", "LinkedList", "BankAccount", "Rectangle", "Timer", "Matrix", "Inventory"),
    *("TodoList", "Temperature", "Fraction", "Vector", "PriorityQueue", "Graph", "Cache", "Deck"),
    *("Thermostat", "Playlist", "Student", "Library", "Polynomial", "Logger", "Counter", "Trie"),
)
ASK_CLASS = (
    "Design a class {} in Python with three useful methods and a short usage example.",
    "Show me how to write the class {} in Python, with type hints and docstrings.",
    "Implement {} as a Python class and test it with assert statements.",
)
ASK_FUNCTION = (
    "Please implement {call} in Python: it {does}.",
    "I need a Python function {call} that {does}. Add comments.",
    "Write {call} in Python. It {does}. Include a docstring and type hints.",
    "Show two ways to write a Python function that {does}.",
    "How would you write {call}, a Python function that {does}? Then explain the code.",
    "Write unit tests with pytest for {call}, a function that {does}.",
    "Translate this idea into JavaScript: a function {call} that {does}.",
)
ASK_TURKISH = (
    "Python'da {call} fonksiyonunu yaz.",
    "{call} adlı bir Python fonksiyonu yaz ve kısaca açıkla.",
)


def code(rng: Random) -> Recipe:
    """A function or a class to write; often the answer is begun."""
    if rng.random() < 0.2:
        name = rng.choice(CLASSES)
        text, mouth = rng.choice(ASK_CLASS).format(name), f"```python\nclass {name}"
        document = f"own/code/{name}"
    else:
        call, does = rng.choice(sorted(TASKS.items()))
        asked = rng.choice(ASK_FUNCTION)
        text, mouth = asked.format(call=call, does=does), _mouth(asked, call)
        document = f"own/code/{call}"
    prefix = (mouth,) if rng.random() < 0.6 and mouth else ()
    return Recipe("code", "en", document, (text,), prefix)


def _mouth(asked: str, call: str) -> str:
    if "JavaScript" in asked:
        return "```javascript\nfunction "
    if "unit tests" in asked:
        return "```python\nimport pytest"
    return f"```python\ndef {call.split('(')[0]}("


def code_turkish(rng: Random) -> Recipe:
    """A function to write, asked in Turkish."""
    call = rng.choice(sorted(TASKS))
    text = rng.choice(ASK_TURKISH).format(call=call)
    mouth = f"```python\ndef {call.split('(')[0]}("
    return Recipe("code", "tr", f"own/code/{call}", (text,), (mouth,))


# --- Changes --------------------------------------------------------------------------------------

FUNCTIONS = (  # name, code with {a} and {b} for its variables
    (
        "largest",
        "def largest({a}):\n    {b} = {a}[0]\n    for value in {a}:\n        if value > {b}:\n"
        "            {b} = value\n    return {b}",
    ),
    (
        "shout",
        "def shout({a}):\n    {b} = {a}.strip().upper()\n    if not {b}.endswith('!'):\n"
        "        {b} = {b} + '!'\n    return {b}",
    ),
    (
        "count_lines",
        "def count_lines({a}):\n    {b} = 0\n    with open({a}) as file:\n"
        "        for line in file:\n            if line.strip():\n                {b} += 1\n"
        "    return {b}",
    ),
    (
        "evens",
        "def evens({a}):\n    {b} = []\n    for number in {a}:\n        if number % 2 == 0:\n"
        "            {b}.append(number)\n    return {b}",
    ),
    (
        "total_price",
        "def total_price({a}, tax):\n    {b} = 0\n    for price, amount in {a}:\n"
        "        {b} += price * amount\n    {b} *= 1 + tax\n    return round({b}, 2)",
    ),
    (
        "initials",
        "def initials({a}):\n    {b} = ''\n    for word in {a}.split():\n        {b} += word[0]\n"
        "    return {b}.upper()",
    ),
    (
        "index_of",
        "def index_of({a}, wanted):\n    {b} = 0\n    while {b} < len({a}):\n"
        "        if {a}[{b}] == wanted:\n            return {b}\n        {b} += 1\n    return -1",
    ),
    (
        "reverse_words",
        "def reverse_words({a}):\n    {b} = {a}.split(' ')\n    {b}.reverse()\n"
        "    return ' '.join({b})",
    ),
    (
        "merge",
        "def merge({a}, {b}):\n    result = []\n    while {a} and {b}:\n"
        "        smaller = {a} if {a}[0] < {b}[0] else {b}\n"
        "        result.append(smaller.pop(0))\n    return result + {a} + {b}",
    ),
    (
        "histogram",
        "def histogram({a}):\n    {b} = {{}}\n    for item in {a}:\n        if item not in {b}:\n"
        "            {b}[item] = 0\n        {b}[item] += 1\n    return {b}",
    ),
    (
        "clamp",
        "def clamp({a}, low, high):\n    {b} = {a}\n    if {b} < low:\n        {b} = low\n"
        "    if {b} > high:\n        {b} = high\n    return {b}",
    ),
    (
        "parse_pairs",
        "def parse_pairs({a}):\n    {b} = {{}}\n    for pair in {a}.split(';'):\n"
        "        key, value = pair.split('=')\n        {b}[key.strip()] = value.strip()\n"
        "    return {b}",
    ),
)
BEFORE = ("x", "a", "v", "arg", "data", "thing", "p", "q", "stuff", "s")
AFTER = ("items", "source", "entries", "given", "raw", "content", "payload", "subject")
RESULTS = ("result", "found", "out", "answer", "acc", "current", "res", "tmp")
CHANGES = (  # what is asked; True when it renames the argument
    ("Please call the argument {new} instead of {a}.", True),
    ("Change the name of the variable {a} to {new} in this code.", True),
    ("Write a short docstring for this function and leave the code alone.", False),
    ("Add type hints to this code. Do not change what it does.", False),
    ("Put a comment above every line of this code.", False),
    ("Raise a ValueError if {a} is empty or None; keep the rest.", False),
    ("Add a print statement that shows {a} at the start of the function.", False),
)
SHOW = ("{ask}\n\n```python\n{code}\n```", "```python\n{code}\n```\n\n{ask} Print all of the code.")


def code_edit(rng: Random) -> Recipe:
    """A function and what to change in it; the answer begins with its first line."""
    name, template = rng.choice(FUNCTIONS)
    a, b, new = rng.choice(BEFORE), rng.choice(RESULTS), rng.choice(AFTER)
    body = template.format(a=a, b=b)
    ask, renames = rng.choice(CHANGES)
    text = rng.choice(SHOW).format(ask=ask.format(a=a, new=new), code=body)
    mouth = f"```python\ndef {name}({new if renames else a}"
    return Recipe("code_edit", "en", f"own/edit/{name}/{a}", (text,), (mouth,))
