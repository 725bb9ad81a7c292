"""Our own little passages, with a question each: to be quoted, or to be put in few words."""

from __future__ import annotations

from random import Random

from specdec_lab.training import own_words as words
from specdec_lab.training.recipes import Recipe

THINGS = (
    *("bridge", "mill", "library", "harbour", "market hall", "railway station", "theatre"),
    *("observatory", "brewery", "school", "lighthouse", "paper factory", "botanical garden"),
)
MATERIALS = ("brick", "limestone", "oak", "granite", "steel", "glass and iron", "red sandstone")
REASONS = (
    *("because the old one had burnt down in a single night", "after a long argument about money"),
    *("to give work to the people of the valley", "because the river had changed its course"),
    *("since the town had doubled in size within ten years", "as a gift of a rich merchant"),
)
USES = (
    *("farmers sold wool and cheese there twice a week", "children learned to swim beside it"),
    *("a small orchestra played there on Sundays", "sailors left their letters with the keeper"),
    *("travellers waited there for the evening coach", "the council met on the upper floor"),
)
TROUBLES = (
    *("a flood carried half of it away", "lightning struck the roof", "the owner went bankrupt"),
    *("a colony of bats moved in", "thieves stole the copper gutters", "the walls began to sink"),
)
TODAYS = (
    *("Today it houses a museum of clocks", "Today volunteers show it to school classes"),
    *("Now the ground floor is a bakery", "Now it stands empty and waits for a buyer"),
    *("Today students rent the rooms under the roof", "Now concerts are held in the courtyard"),
)
QUESTIONS = {  # what is asked, and which sentence answers
    "When and why was it built?": 1,
    "What was it made of, and who worked on it?": 2,
    "What was it used for in its first years?": 3,
    "What went wrong later?": 4,
    "What is it today?": 5,
}
ASK_QUOTE = (
    "{passage}\n\n{question} Reply with the exact sentence from the text.",
    "Text:\n{passage}\n\nQuestion: {question}\nCopy the sentence that answers it, then stop.",
    "Use only words of this text to reply.\n\n{passage}\n\n{question}",
)
ASK_SUMMARY = (
    "{}\n\nPut this into one or two sentences.",
    "What are the main points of the text below?\n\n{}",
    "Shorten this text to a third of its length.\n\n{}",
    "Write a headline and a short summary for this text:\n\n{}",
)
MOUTH = ("The text says: “{}", "According to the text, “{}", 'The answer is: "{}')


def passage(rng: Random) -> tuple[str, list[str]]:
    """The name of a document, and six sentences about a building that never was."""
    thing, city, year = rng.choice(THINGS), rng.choice(words.CITIES), rng.randint(1720, 1930)
    builder = f"{rng.choice(words.NAMES)} {rng.choice(words.SURNAMES)}"
    lines = [
        f"The old {thing} of {city} stands in a quarter that few visitors know.",
        f"It was built in {year} {rng.choice(REASONS)}.",
        f"{builder} chose {rng.choice(MATERIALS)} for the walls, and {rng.randint(12, 300)} "
        f"workers needed {rng.randint(2, 9)} years to finish it.",
        f"In the early days {rng.choice(USES)}.",
        f"Later {rng.choice(TROUBLES)}, and for {rng.randint(5, 60)} years nobody cared.",
        f"{rng.choice(TODAYS)}, and a {rng.choice(words.COLOURS)} flag above the door tells when "
        "it is open.",
    ]
    return f"own/passage/{thing} of {city} by {builder}", lines


def quotation(rng: Random) -> Recipe:
    """A question that a sentence of the passage answers; its first words are in the mouth."""
    document, lines = passage(rng)
    question, place = rng.choice(sorted(QUESTIONS.items()))
    text = rng.choice(ASK_QUOTE).format(passage=" ".join(lines), question=question)
    begun = " ".join(lines[place].split()[:3])
    mouth = rng.choice(MOUTH).format(begun)
    return Recipe("quotation", "en", document, (text,), (mouth,))


def summary(rng: Random) -> Recipe:
    """The passage, to be shortened."""
    document, lines = passage(rng)
    text = rng.choice(ASK_SUMMARY).format(" ".join(lines))
    return Recipe("summary", "en", document, (text,))
