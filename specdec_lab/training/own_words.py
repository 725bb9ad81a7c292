"""Words that our own prompts are put together from."""

PEOPLE = (
    *("a lighthouse keeper", "a retired pilot", "a young violin maker", "a bus driver"),
    *("a night nurse", "a botanist", "a shy translator", "a beekeeper", "a chess teacher"),
    *("a cook on a cargo ship", "a museum guard", "a mountain guide", "a street musician"),
    *("an old fisherman", "a robot librarian", "a tailor", "a weather reporter", "a potter"),
    *("a girl who collects maps", "a boy who can hear radio waves", "a baker", "a postman"),
    *("an astronomer", "a stonemason", "a bored ghost", "a talkative parrot", "a train driver"),
)
PLACES = (
    *(
        "in a town on stilts",
        "on a frozen lake",
        "in a library without doors",
        "on a space station",
    ),
    *("in a desert market", "under an old bridge", "in a village of glass blowers", "on a ferry"),
    *("in a greenhouse at night", "at the end of a railway line", "in a flooded valley"),
    *("on the roof of a hospital", "in a cave full of crystals", "in a school for dragons"),
    *("in a small mountain hotel", "in an abandoned cinema", "on a floating garden"),
    *("in a city where nobody sleeps", "behind a waterfall", "in a toy shop before closing time"),
)
TURNS = (
    *("a letter arrives that was posted forty years ago", "the river starts to flow uphill"),
    *("all the bells ring at once", "a stranger asks for the wrong name", "the power goes out"),
    *("a map shows a street that is not there", "somebody returns a borrowed umbrella"),
    *("the last bus does not come", "a cat leads the way", "an old photograph changes"),
    *("the rain does not stop for a year", "a key fits every door but one"),
    *("a song is heard that nobody sings", "a bet must be paid", "the snow turns blue"),
)
FORMS = (
    *("Write a short story about", "Write the first page of a novel about", "Write a fable about"),
    *("Write a short dialogue with", "Write a bedtime story about", "Write a ballad about"),
    *("Write a diary entry by", "Write a letter from", "Write a short science fiction scene with"),
    *(
        "Write a mystery that begins with",
        "Write a funny speech by",
        "Write a free verse poem about",
    ),
)
MOODS = (
    *("Keep it calm and quiet.", "Make it funny.", "Make it a little sad.", "Use simple words."),
    *("End with a question.", "Use the first person.", "Use the present tense.", "Keep it short."),
    *("Let it end well.", "Give it a title.", "", "", ""),
)
ADVICE = (
    *("learn to swim as an adult", "save money for a bicycle", "grow tomatoes on a balcony"),
    *("prepare for a job interview", "write a letter of complaint", "remember people's names"),
    *("bake bread at home", "choose a laptop for school", "train for a ten kilometre run"),
    *("stop putting things off", "clean a greasy oven", "plan a week of cheap meals"),
    *("start a book club", "teach a child to read", "take better photographs", "learn the guitar"),
    *("pack for a winter hike", "repair a flat bicycle tyre", "make a budget", "read faster"),
    *("speak in front of a class", "wash a wool sweater", "store potatoes", "feed a sourdough"),
    *("calm a nervous dog", "organise a small kitchen", "learn a new language", "sleep on a train"),
    *("make friends in a new city", "keep a diary", "fix a dripping tap", "draw portraits"),
    *("water plants during a holiday", "cook for ten guests", "quit sugar", "paint a wall"),
    *("meditate for the first time", "write a birthday speech", "sharpen a knife"),
    *("travel with a baby", "use less plastic", "study for a maths exam", "find a lost cat"),
    *("choose running shoes", "say no politely", "get up earlier", "start with chess"),
    *("lower the heating bill", "build a bird house", "ask for a raise", "move to another country"),
)
CONCEPTS = (
    *("how rain forms", "why the sky is blue", "how a vaccine works", "what inflation is"),
    *("how a bicycle stays upright", "what a black hole is", "how the heart pumps blood"),
    *("why leaves change colour", "how a refrigerator works", "what photosynthesis is"),
    *("how the internet finds a website", "what a database index is", "how tides work"),
    *("why metals conduct electricity", "what an algorithm is", "how glass is made"),
    *("how earthquakes happen", "what supply and demand mean", "how a battery stores energy"),
    *("why we dream", "how aeroplanes fly", "what DNA does", "how a compiler works"),
    *("what recursion is", "how bees make honey", "why ice floats", "how a lock and key work"),
    *("what probability means", "how paper is recycled", "how a telescope works"),
    *("what machine learning is", "how sound travels", "why the moon has phases"),
    *("how a volcano erupts", "what a contract is", "how elections work", "what gravity is"),
    *("how a piano makes sound", "what a virus is", "how memory works", "what a leap year is"),
    *("how coffee is produced", "what encryption does", "how a steam engine works"),
)
AUDIENCES = (
    *("to a child of ten", "in simple words", "in three short paragraphs", "with an example"),
    *("to somebody who has never heard of it", "step by step", "with a comparison from daily life"),
    *("as a list of five points", "in one paragraph", "like a friendly teacher"),
)
NAMES = (
    *("Ada", "Ben", "Carla", "Deniz", "Elif", "Farid", "Grace", "Hakan", "Irene", "Jonas"),
    *("Kemal", "Leyla", "Maria", "Noah", "Olga", "Pedro", "Rosa", "Selim", "Tara", "Victor"),
    *("Wanda", "Yusuf", "Zoe", "Arda", "Bianca", "Cem", "Dora", "Emre", "Fiona", "Gustav"),
)
SURNAMES = (
    *("Archer", "Bauer", "Castro", "Demir", "Evans", "Fischer", "Garcia", "Holm", "Ivanov"),
    *("Jensen", "Kaya", "Lopez", "Murphy", "Novak", "Olsen", "Petrov", "Quinn", "Rossi"),
    *("Schmidt", "Turner", "Usta", "Varga", "Weber", "Yilmaz", "Ziegler"),
)
CITIES = (
    *("Ankara", "Berlin", "Cairo", "Delhi", "Essen", "Florence", "Geneva", "Hamburg", "Izmir"),
    *("Jakarta", "Kyoto", "Lagos", "Madrid", "Naples", "Osaka", "Paris", "Quito", "Riga"),
    *("Sofia", "Tunis", "Utrecht", "Valencia", "Warsaw", "Zagreb"),
)
COLOURS = ("red", "blue", "green", "black", "white", "silver", "yellow", "brown", "grey", "orange")
GOODS = (
    *("lamp", "chair", "kettle", "backpack", "notebook", "radio", "tent", "pillow", "hammer"),
    *("bicycle", "keyboard", "mirror", "teapot", "jacket", "camera", "clock", "basket", "scarf"),
    *("suitcase", "blender", "drill", "helmet", "carpet", "printer", "umbrella"),
)
TURKISH_ADVICE = (
    *("sabahları erken kalkmak", "evde ekmek yapmak", "yeni bir dil öğrenmek", "para biriktirmek"),
    *("daha az televizyon izlemek", "bisiklet sürmeyi öğrenmek", "balkonda domates yetiştirmek"),
    *("sınava hazırlanmak", "kilo vermek", "iyi fotoğraf çekmek", "gitar çalmak", "kitap okumak"),
    *("iş bulmak", "yüzmeyi öğrenmek", "evi düzenli tutmak", "arkadaş edinmek"),
)
