"""Our own prompts for talk, stories, sums and records, put together from words by chance.

Each function makes one recipe of a domain from a random generator. The document of a recipe is the
subject that it is about, so that a subject is never in train and held out at once.
"""

from __future__ import annotations

import json
from random import Random

from specdec_lab.training import own_words as words
from specdec_lab.training.recipes import Recipe

HOW_TO = (
    "How can I {}?",
    "What is a good way to {}?",
    "I would like to {}. Where do I start?",
    "Give me five tips on how to {}.",
    "A friend wants to {}. What should I tell them?",
    "What are common mistakes when you try to {}?",
    "Make a plan for somebody who wants to {} within a month.",
    "Is it hard to {}? Explain why or why not.",
)
EXPLAIN = ("Explain {} {}.", "Please describe {} {}.", "Tell me {} {}.")
HOW_TO_TURKISH = (
    "{} istiyorum. Ne yapmalıyım?",
    "{} için üç öneri ver.",
    "{} neden zor? Kısaca açıkla.",
)


def chat(rng: Random) -> Recipe:
    """Advice or an explanation."""
    if rng.random() < 0.55:
        subject = rng.choice(words.ADVICE)
        text = rng.choice(HOW_TO).format(subject)
    else:
        subject = rng.choice(words.CONCEPTS)
        text = rng.choice(EXPLAIN).format(subject, rng.choice(words.AUDIENCES))
    return Recipe("chat", "en", f"own/chat/{subject}", (text,))


def chat_turkish(rng: Random) -> Recipe:
    """Advice, asked in Turkish."""
    subject = rng.choice(words.TURKISH_ADVICE)
    text = rng.choice(HOW_TO_TURKISH).format(subject)
    return Recipe("chat", "tr", f"own/chat/{subject}", (text[0].upper() + text[1:],))


def creative(rng: Random) -> Recipe:
    """A story, a poem or a letter about somebody somewhere."""
    who, where, turn = (rng.choice(w) for w in (words.PEOPLE, words.PLACES, words.TURNS))
    form, mood = rng.choice(words.FORMS), rng.choice(words.MOODS)
    beginning = f"{form} {who} {where}"
    text = f"{beginning}, where {turn}. {mood}" if rng.random() < 0.6 else f"{beginning}. {mood}"
    return Recipe("creative", "en", f"own/creative/{who}", (text.strip(),))


# --- Sums -----------------------------------------------------------------------------------------

SUMS = (
    "{name} packs {a} boxes with {b} {things} each and gives {c} {things} away. How many are left?",
    "A {thing} costs {b} euros. {name} buys {a} of them and has a voucher for {c} euros. "
    "What is the total price?",
    "{name} reads {b} pages a day. The book has {d} pages. How many days does it take?",
    "A tank holds {d} litres and loses {a} litres an hour. How much is left after {c} hours?",
    "{name} is {a} years old, and {other} is {c} years older. How old are they together?",
    "A cyclist rides {a} kilometres in the morning and {b} in the afternoon, {c} days in a row. "
    "How far is that in all?",
    "In a class of {d} pupils, {b} play football and {c} play chess. How many play neither, if "
    "nobody plays both?",
    "{name} earns {b} euros an hour and works {a} hours a week. How much is that in {c} weeks?",
    "A rectangle is {a} metres long and {b} metres wide. What are its area and its perimeter?",
    "{name} has {d} euros, spends {b} on a {thing} and half of the rest on food. What remains?",
    "A recipe for {c} people needs {b} grams of flour. How much is needed for {a} people?",
    "The price of a {thing} rises from {b} to {d} euros. By how many percent is that?",
    "Solve for x: {c}x + {a} = {d}.",
    "What is {a} times {b}, minus {d}?",
    "Is {d} divisible by {c}? Find the remainder.",
    "A bag holds {a} red and {b} {colour} balls. What is the chance to draw a red one?",
)
HOW_TO_SOLVE = (
    "Show every step.",
    "Explain how you get the answer.",
    "First write down what is known, then compute.",
    "Think it through and give the result at the end.",
)


def maths(rng: Random) -> Recipe:
    """A small sum in words."""
    story = rng.choice(SUMS)
    thing = rng.choice(words.GOODS)
    text = story.format(
        name=rng.choice(words.NAMES),
        other=rng.choice(words.NAMES),
        thing=thing,
        things=f"{thing}s",
        colour=rng.choice(words.COLOURS),
        a=rng.randint(3, 25),
        b=rng.randint(6, 60),
        c=rng.randint(2, 9),
        d=rng.randint(70, 400),
    )
    return Recipe("maths", "en", f"own/maths/{text}", (f"{text} {rng.choice(HOW_TO_SOLVE)}",))


# --- Records --------------------------------------------------------------------------------------

FIELDS = {
    "name": lambda rng: rng.choice(words.NAMES),
    "surname": lambda rng: rng.choice(words.SURNAMES),
    "city": lambda rng: rng.choice(words.CITIES),
    "colour": lambda rng: rng.choice(words.COLOURS),
    "item": lambda rng: rng.choice(words.GOODS),
    "price": lambda rng: rng.randint(5, 900) / 10,
    "count": lambda rng: rng.randint(1, 60),
    "year": lambda rng: rng.randint(1950, 2024),
    "active": lambda rng: rng.random() < 0.5,
    "email": lambda rng: f"{rng.choice(words.NAMES).lower()}@example.org",
    "code": lambda rng: f"{rng.choice('ABCDEFGH')}{rng.randint(100, 999)}",
    "score": lambda rng: rng.randint(0, 100),
    "date": lambda rng: f"2024-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
    "minutes": lambda rng: rng.randint(5, 240),
    "tags": lambda rng: rng.sample(words.COLOURS, 2),
}
SUBJECTS = (
    *("customers", "orders", "parcels", "visitors", "players", "tickets", "rooms", "repairs"),
    *("members", "lessons", "flights", "sensors", "invoices", "students", "trips", "devices"),
)
SUBJECTS_TURKISH = ("müşteriler", "siparişler", "öğrenciler", "biletler", "odalar", "dersler")
ASK_RECORDS = (
    "Convert this table of {} into JSON objects, one per row:\n\n{}",
    "Below is a list of {}. Give me each entry as a JSON object on its own line.\n\n{}",
    "Here are some {} in plain text:\n\n{}\n\nReturn them as JSON lines.",
    "Rewrite these {} in JSON. Keep the order.\n\n{}",
)
ASK_RECORDS_TURKISH = (
    "Aşağıdaki {} listesini satır satır JSON nesnelerine çevir:\n\n{}",
    "Bu {} tablosunu JSON olarak yaz, her nesne bir satırda:\n\n{}",
)
ASK_ARRAY = "Turn the following {} into one JSON array:\n\n{}"
ASK_INVENTED = (
    "Invent {count} {subject} and print them as JSON objects with the keys {keys}. One per line.",
    "I need test data: {count} {subject} as JSON lines. Every object has {keys}.",
)


def records(rng: Random) -> Recipe:
    """Rows to turn into JSON, or JSON to make up; the first object is in the mouth."""
    keys = rng.sample(sorted(FIELDS), rng.randint(3, 5))
    rows = [{key: FIELDS[key](rng) for key in keys} for _ in range(rng.randint(4, 7))]
    document = f"own/json/{' '.join(sorted(keys))}"
    style = rng.random()
    if style < 0.2:
        text = rng.choice(ASK_INVENTED).format(
            count=len(rows) + 2, subject=rng.choice(SUBJECTS), keys=", ".join(keys)
        )
        return Recipe("json", "en", document, (text,), (_begun(rows),))
    table = _table(rng, keys, rows)
    if style < 0.35:
        text = ASK_ARRAY.format(rng.choice(SUBJECTS), table)
        first = json.dumps(rows[:1], indent=2).removesuffix("\n]")
        return Recipe("json", "en", document, (text,), (f'{first},\n  {{\n    "{keys[0]}":',))
    text = rng.choice(ASK_RECORDS).format(rng.choice(SUBJECTS), table)
    return Recipe("json", "en", document, (text,), (_begun(rows),))


def records_turkish(rng: Random) -> Recipe:
    """Rows to turn into JSON, asked in Turkish."""
    keys = rng.sample(sorted(FIELDS), rng.randint(3, 5))
    rows = [{key: FIELDS[key](rng) for key in keys} for _ in range(rng.randint(4, 6))]
    asked = rng.choice(ASK_RECORDS_TURKISH)
    text = asked.format(rng.choice(SUBJECTS_TURKISH), _table(rng, keys, rows))
    document = f"own/json/{' '.join(sorted(keys))}"
    return Recipe("json", "tr", document, (text,), (_begun(rows),))


def _begun(rows: list[dict]) -> str:
    """The first object and the first key of the next, up to where a token ends anyway."""
    return f'{json.dumps(rows[0])}\n{{"{next(iter(rows[1]))}":'


def _table(rng: Random, keys: list[str], rows: list[dict]) -> str:
    """The rows as text: with bars, with commas, or key by key."""
    if rng.random() < 0.3:
        return "\n".join(", ".join(f"{k} {_cell(row[k])}" for k in keys) for row in rows)
    between = rng.choice((" | ", ", ", "\t"))
    lines = [keys, *([_cell(row[key]) for key in keys] for row in rows)]
    return "\n".join(between.join(line) for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "+".join(value) if isinstance(value, list) else str(value)
