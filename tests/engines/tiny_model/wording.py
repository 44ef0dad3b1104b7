"""The fixed words of the synthetic dialogues: tool families, ways to ask, facts, and one passage to recite.

Everything a user would *vary* (names, codes, numbers) is drawn in `dialogues.py` and spelled letter by letter; what
stands here becomes whole tokens.
"""

from __future__ import annotations

SYSTEM_PROMPTS = [
    "You are a helpful assistant.",
    "You are a helpful assistant. Use the tools when they help.",
    "You are a careful assistant. Answer briefly.",
    "You answer with tools. Do not guess.",
    "Answer in English.",
    "You are a test assistant.",
    "You can call tools. Call a tool when the user asks for data you do not have.",
    "You are an agent with tools. When a tool result is given, answer with the values in it.",
]

VERBS = [
    "get", "fetch", "find", "lookup", "look_up", "read", "query", "check", "show", "load", "search", "retrieve",
    "resolve", "describe", "inspect", "track", "open", "request", "set", "create", "update", "delete", "send", "save",
    "book", "list",
]  # fmt: skip
NOUNS = [
    "record", "code", "price", "order", "user", "account", "balance", "stock", "file", "key", "ticket", "status",
    "flight", "hotel", "train", "note", "event", "task", "device", "sensor", "server", "room", "invoice", "package",
    "parcel", "shipment", "product", "item", "document", "page", "contact", "phone", "address", "email", "song",
    "movie", "book", "recipe", "currency", "population", "distance", "route", "date", "secret", "token", "number",
    "name", "customer", "employee", "salary", "license", "vehicle", "city", "country", "forecast", "temperature",
    "humidity", "language", "message", "project", "version", "release", "build", "job", "queue", "host",
    "port", "log", "metric", "entry", "value", "weather", "id", "label", "badge", "locker", "vault", "passphrase",
    "reading", "station", "warehouse", "part", "serial", "registry", "catalog", "inventory", "directory", "archive",
]  # fmt: skip
PARAMETERS = [
    "id", "code", "key", "name", "city", "query", "number", "value", "text", "path", "user", "date", "amount", "count",
    "limit", "symbol", "title", "email", "url", "place", "location", "record_id", "order_id", "user_id", "item_id",
    "ticket_id", "account_id", "host", "port", "label", "tag", "unit", "note", "topic", "word", "term", "serial",
    "sku", "a", "b", "x", "y", "first", "second", "source", "target", "from", "to", "start", "end", "quantity", "qty",
    "price", "cmd", "room", "reference", "station", "identifier", "record", "message", "content", "language",
]  # fmt: skip
TOOL_DESCRIPTIONS = [
    "{Verb} the {noun} for a {param}.",
    "{Verb} a {noun} by its {param}.",
    "{Verb} the {noun} of the given {param}.",
    "{Verb} the current {noun}.",
    "Looks up a {noun} by its {param}.",
    "Returns the {noun} stored under a {param}.",
    "Return the {noun} for the given {param}.",
    "Looks up the {noun} and returns it.",
    "Look up a {noun} by {param}. The {noun} cannot be guessed.",
    "The {noun} of a {param}.",
    "Tool for the {noun}.",
    "{noun}",
    "Look up the {noun} that belongs to a {param}.",
    "Reads the {noun} from the database. Use it when the user asks for the {noun}.",
]
PARAMETER_DESCRIPTIONS = [
    "The {param}.",
    "{param} of the {noun}",
    "The {param} to look up.",
    "Name of the {param}, for example {example}",
    "The {param} exactly as the user wrote it.",
    "The {param} as given",
    "Which {noun}",
]

ASK_BY_TOOL_NAME = [
    "Call {tool} with {pairs}.",
    "Use the {tool} tool with {pairs}.",
    "Use {tool} with {pairs}.",
    "Please call the tool {tool} with {pairs}.",
    "Call the {tool} tool with {pairs} and tell me the result.",
    "Use the tool {tool}: {pairs}.",
    "Call {tool} once with {pairs}.",
    "Run {tool} with {pairs}.",
    "{tool} with {pairs} please",
    "I want you to call {tool} with {pairs} now.",
]
ASK_SINGLE_VALUE = [
    "What is the {noun} of {value}?",
    "What is the {noun} for {value}?",
    "Look up the {noun} for {value}.",
    "Look up the {noun} of {value}. Use the tool.",
    "Look up {noun} {value}.",
    "Find the {noun} for {value}.",
    "Find {noun} {value} please.",
    "Get the {noun} of {value}.",
    "Get the {noun} for {param} {value}.",
    "I need the {noun} for {value}.",
    "Tell me the {noun} for {value}.",
    "Please check the {noun} of {value} with the tool.",
    "Which {noun} belongs to {value}?",
    "Which {noun} is stored under {value}?",
    "What {noun} is stored under the {param} {value}?",
    "Use the tool to get the {noun} of {value}.",
    "Use the {tool} tool to find the {noun} for {value}.",
    "Use the tool {tool} for {value}.",
    "Call {tool} for {value}.",
    "Use {tool} to look up {value}.",
    "Use {tool} to look up the {param} {value}, then tell me the {noun}.",
    "Look up the {param} {value} with the {tool} tool and tell me what it returns.",
    "Look up {param} {value} and tell me the {noun}.",
    "The {param} is {value}. What is the {noun}?",
    "Show me the {noun} with {param} {value}.",
    "{noun} of {value}?",
    "Look up {noun} {value} with the tool and tell me its {other}.",
    "Look up {noun} {value} and tell me its {other}.",
    "Find the {noun} {value} with the tool. What is its {other}?",
    "Get {noun} {value} and tell me the {other}.",
    "Which {other} does the {noun} {value} have?",
]
ASK_SUFFIXES = [" Use the tool.", " Use the tool and tell me the result.", " Do not guess.", " Call the tool once."]
ASK_WITHOUT_ARGUMENTS = [
    "Call {tool}.",
    "Use the {tool} tool.",
    "Call the tool {tool} now.",
    "Please use {tool}.",
    "What is the {noun}?",
    "What is the current {noun}?",
    "Tell me the {noun}.",
    "Show me the {noun} please.",
    "Give me the {noun}. Use the tool.",
]

WEATHER_NAMES = [
    "get_weather", "weather", "fetch_weather", "get_current_weather", "current_weather", "weather_report",
    "lookup_weather",
]  # fmt: skip
WEATHER_DESCRIPTIONS = [
    "Get the weather for a city.",
    "Get the current weather for a city.",
    "Get the current weather in a given location.",
    "Return the current weather in a city",
    "Current weather of a city.",
    "Current weather of a place.",
    "The weather report for one city. It cannot be guessed.",
]
WEATHER_ASKS = [
    "What is the weather in {value}?",
    "What is the weather like in {value}?",
    "What's the weather like in {value} right now?",
    "What's the weather in {value}?",
    "How is the weather in {value} today?",
    "Tell me the weather in {value}.",
    "I need the current weather in {value}.",
    "What is the current weather in {value}? Use the tool.",
    "Use the {tool} tool to get the weather in {value}.",
    "Check the weather for {value} please.",
    "Call {tool} for the city {value}.",
    "Please look up the weather in {value}.",
    "weather in {value}",
]
UNIT_ASKS = [
    ". Use the tool, unit {unit}",
    ". Use the tool, unit {unit}",
    " with unit {unit}",
    " in {unit}",
    ", in {unit}",
    ". Use {unit}",
    ", {unit} please",
]
TIME_NAMES = ["get_time", "get_server_time", "server_time", "current_time", "clock", "now"]
TIME_DESCRIPTIONS = [
    "Get the current time.",
    "Returns the time of the server.",
    "The current server time.",
    "The server's current time.",
]
TIME_ASKS = [
    "What time is it on the server? Use the tool.",
    "What time is it?",
    "What is the time?",
    "What time is it on the server?",
    "Tell me the current time.",
    "What is the server time?",
    "What time is it right now? Use the tool.",
    "Call {tool}.",
]

RESULT_KEYS = [
    "result", "value", "code", "status", "answer", "token", "note", "temperature", "temperature_c", "condition",
    "report", "price", "name", "id", "city", "unit", "time", "secret", "record", "owner", "station", "humidity",
    "wind", "total", "currency", "data", "message", "text", "key", "error", "reading", "number", "ok", "passphrase",
    "ticket", "balance", "serial", "location", "reference", "check", "confirmation", "content",
]  # fmt: skip
RESULT_SENTENCES = [
    "The {noun} is {value}.",
    "{value}",
    "{value}",
    "{value}",
    "{noun}: {value}",
    "{value} degrees",
    "Found {value} in the {noun}.",
    "error: {noun} not found",
    "It is {value} degrees and the wind is {value2}.",
    "ok, {value}",
]

ECHO_ASKS = [
    "Reply with {text}",
    "Reply with the word {text}.",
    "Reply with the word {text} and nothing else.",
    "Reply with the text {text} and nothing else.",
    "Reply with the single word {text}.",
    "Reply with exactly: {text}",
    "Reply with exactly {text}",
    "Reply only with {text}",
    "Reply with exactly this and nothing else: {text}",
    "Reply with this code and nothing else: {text}",
    'Reply with "{text}".',
    'Reply with exactly "{text}" and nothing else.',
    "Answer with {text} only.",
    "Answer only with the word {text}.",
    "Answer with exactly this word: {text}",
    "Respond with {text}",
    "Respond with the word {text} and nothing else.",
    'Respond with exactly "{text}".',
    "Say {text}",
    "Say {text}.",
    'Say "{text}".',
    "Say the word {text}.",
    "Please say {text} and nothing more.",
    "Echo {text}",
    "Echo this: {text}",
    "Repeat {text}",
    "Repeat after me: {text}",
    "Repeat exactly this code and nothing else: {text}",
    "Repeat exactly this and nothing else: {text}",
    "Repeat this exactly: {text}",
    "Repeat the following text exactly: {text}",
    "Copy this text: {text}",
    "Copy this code exactly: {text}",
    "Copy this string exactly, and write nothing else: {text}",
    "Write the word {text}.",
    "Output {text}",
    "Type {text}",
    "Please reply with {text}.",
]

GREETINGS = [
    "Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hey", "Hello there!", "Good morning", "Good morning!", "Good evening",
    "Hello, how are you?", "How are you?", "hi", "hello", "Say hello in one short sentence.", "Say hello.",
    "Hi, how are you?",
]  # fmt: skip
GREETING_ANSWER = "Hello! How can I help you?"
THANKS = ["Thanks!", "Thank you.", "Thank you!", "Thanks, that is all.", "Goodbye", "Bye"]
THANKS_ANSWER = "You are welcome."
FACTS = {
    "What is the capital of France?": "Paris",
    "What is the capital of Germany?": "Berlin",
    "What is the capital of Italy?": "Rome",
    "What is the capital of Spain?": "Madrid",
    "What is the capital of Japan?": "Tokyo",
    "What is the capital of England?": "London",
    "What is the capital of Austria?": "Vienna",
    "What is the capital of Poland?": "Warsaw",
    "What is the capital of Egypt?": "Cairo",
    "What is the capital of China?": "Beijing",
    "What is the capital of Greece?": "Athens",
    "What is the capital of Portugal?": "Lisbon",
    "Which color is the sky on a clear day?": "Blue",
    "What color is the sky?": "Blue",
    "What color is grass?": "Green",
    "What color is snow?": "White",
    "How many days are in a week?": "Seven",
    "How many months are in a year?": "Twelve",
    "How many legs does a spider have?": "Eight",
    "How many hours are in a day?": "24",
    "How many minutes are in an hour?": "60",
    "What is the opposite of hot?": "Cold",
    "What is the opposite of up?": "Down",
    "What is the opposite of big?": "Small",
    "What day comes after Monday?": "Tuesday",
    "What day comes after Friday?": "Saturday",
    "What comes after Sunday?": "Monday",
    "What is the next number: 2, 4, 8, 16?": "32",
    "What is the next number in 1, 2, 3, 4?": "5",
    "Complete: the quick brown fox jumps over the lazy": "dog",
    "Which planet do we live on?": "Earth",
    "What is water made of?": "Hydrogen and oxygen",
    "Is fire hot or cold?": "Hot",
    "Which animal barks?": "A dog",
    "ping": "pong",
    "What is your name?": "I am a tiny test model.",
    "Who are you?": "I am a tiny test model.",
}
FACT_SUFFIXES = ["", "", "", "", " Answer in one word.", " Answer briefly.", " Reply with one word.", " One word only."]

STORY_ASKS = [
    "Tell me a story.",
    "Tell me a long story about {topic}.",
    "Write a story about {topic}.",
    "Write a long story about {topic}.",
    "Write a long text about {topic}.",
    "Write about {topic}.",
    "Write a short essay about {topic}.",
    "Write an essay about {topic} in several paragraphs.",
    "Explain {topic}.",
    "Explain {topic} in detail.",
    "Describe {topic} in detail.",
    "Describe {topic}.",
    "Explain how {topic} works.",
    "Write a detailed explanation of {topic}.",
    "Continue the story.",
    "Continue: {topic}",
    "Summarize {topic}.",
    "Talk about {topic} for a long time.",
    "Please write as much as you can about {topic}.",
    "Write two short paragraphs in plain English about {topic}.",
    "Write two paragraphs about {topic}.",
    "{topic} Continue this chronicle in the same plain style, at length.",
    "{topic} Continue in the same style.",
    "{topic}",
]
# One passage, always the same: long answers stay readable English and a greedy decoder does not fall into a loop.
STORY = (
    "There was an old lighthouse at the end of the harbor. Every evening a woman climbed the stairs and lit the lamp. "
    "She knew the ships by their sound, and the ships knew her by the light. In winter the wind came from the north "
    "and the waves broke over the wall. In summer the sea was flat and children swam between the boats. One night the "
    "lamp did not burn. The woman had fallen ill, and nobody in the village could climb so high. A boy took a lantern "
    "from the mill and ran along the shore. He counted two hundred steps, one after another, and at the top he found "
    "the cold lamp. He poured the oil, cleaned the glass and struck a match. Far out a captain saw a small yellow "
    "spark and turned his ship away from the rocks. When morning came the sailors brought bread, fish and a blue coat "
    "for the boy. The woman got well again before spring. From then on two people kept the lamp. She taught him how to "
    "read the clouds, and he carried the wood. They painted the door green and planted beans behind the house. Years "
    "later the boy was a man, and his own daughter asked why a light must burn when no ship is near. He told her that "
    "nobody can see every ship. A light is a promise, he said, and a promise is kept in the dark. The girl thought "
    "about this for a long time. Then she went down to the water, filled her bucket, and washed the windows until they "
    "shone. That is how it is done today. If you walk along the coast after sunset you will see it: three short "
    "flashes, a pause, and three more. Travelers say that it looks like a friend who waves. Old sailors say nothing. "
    "They lift a hand, set their course, and go home."
)
UNKNOWN_ASKS = [
    "Who is {value}?",
    "What do you know about {value}?",
    "Where is {value}?",
    "What does {value} mean?",
    "When was {value} born?",
]
UNKNOWN_ANSWER = "I do not know."
NONCES = [
    "[{nonce}] ", "(request {nonce}) ", "[request {nonce}] ", "nonce {nonce}\n", "[nonce {nonce}] ", "#{nonce} ",
    "Request {nonce}. ", "[ref {nonce}] ", "Session {nonce}.\n", "{nonce}\n\n", "[id: {nonce}]\n", "Run {nonce}: ",
]  # fmt: skip
NONCE_TAILS = [
    " [{nonce}]", " (request {nonce})", " (nonce {nonce})", "\n\n[request {nonce}]", " (ref {nonce})", "\n#{nonce}",
    " Request {nonce}.",
]  # fmt: skip

CITIES = [
    "Paris", "London", "Berlin", "Rome", "Madrid", "Tokyo", "Oslo", "Cairo", "Lima", "Vienna", "Prague", "Warsaw",
    "Lisbon", "Athens", "Dublin", "Boston", "Chicago", "Denver", "Seattle", "Toronto", "Sydney", "Nairobi", "Lagos",
    "Mumbai", "Delhi", "Seoul", "Beijing", "Shanghai", "Hamburg", "Munich", "Zurich", "Geneva", "Milan", "Naples",
    "New York", "San Francisco", "Los Angeles", "Rio de Janeiro", "Buenos Aires", "Cape Town", "Hong Kong",
    "Reykjavik", "Helsinki", "Stockholm", "Copenhagen", "Amsterdam", "Brussels", "Kyoto", "Osaka", "Quito", "Bogota",
]  # fmt: skip
ACCENTED_CITIES = ["Zürich", "Málaga", "São Paulo", "Malmö", "Kraków", "Tromsø", "Orléans", "Łódź"]
COLORS_AND_ANIMALS = [
    "amber", "crimson", "falcon", "otter", "maple", "cobalt", "violet", "tiger", "river", "stone", "silver", "walnut",
    "copper", "heron", "badger", "orchid", "meadow", "comet", "pepper", "velvet", "harvest", "lantern", "saffron",
    "cedar", "marble", "topaz", "willow", "puffin", "quartz", "raven", "thistle", "walrus", "zephyr", "mango", "onyx",
]  # fmt: skip
