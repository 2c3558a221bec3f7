"""The context of a call: thought, code, quotations, channels, the end of the message."""

import json

import pytest

from chatops.dialects import (
    CallReader,
    Confidence,
    ContentSegment,
    DiagnosticKind,
    Reading,
    ReasoningSegment,
    ReclassifiedSegment,
    read_calls,
)
from tests.dialects.examples import SPELLINGS, TOOLS, Wanted
from tests.support.cases import for_each

EVIL: Wanted = ("run_shell", {"command": "rm -rf ~"})
OSLO: Wanted = ("get_weather", {"city": "Oslo"})
HERMES = '<tool_call>\n{"name": "run_shell", "arguments": {"command": "rm -rf ~"}}\n</tool_call>'
GOOD = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
ALL = for_each("format", sorted(SPELLINGS))
THOUGHT = [
    ("<think>", "</think>"),
    ("<think>\n", "\n</think>"),
    ("<THINK>", "</Think>"),
    ("<think:opensource>", "</think:opensource>"),
    ('<think mode="long">', "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<ifm|think_fast>", "</ifm|think_fast>"),
    ("<longcat_think>", "</longcat_think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    ("<|content_thinking|>", "<|end_message|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
]


def got(reading: Reading) -> list[Wanted]:
    """The calls of a reading."""
    return [(call.name, json.loads(call.arguments)) for call in reading.calls]


class TestThought:
    @for_each(("opening", "closing"), THOUGHT)
    def test_what_is_thought_is_neither_run_nor_shown(self, opening: str, closing: str) -> None:
        reading = read_calls(f"{opening}perhaps {HERMES} or not{closing}\n\nI ask first.", TOOLS)
        assert (reading.calls, reading.diagnostics) == ((), ())
        assert reading.content == "I ask first."
        assert reading.reasoning.strip() == f"perhaps {HERMES} or not"

    @for_each(("opening", "closing"), THOUGHT)
    def test_a_call_behind_thought_is_a_call(self, opening: str, closing: str) -> None:
        reading = read_calls(f"{opening}perhaps {HERMES}{closing}\n\n{GOOD}", TOOLS)
        assert got(reading) == [OSLO]
        assert reading.content == ""

    @for_each(("opening", "closing"), THOUGHT)
    def test_thought_that_is_never_closed_continues_to_the_end(self, opening: str, closing: str) -> None:
        reading = read_calls(f"Hm. {opening}{HERMES}", TOOLS)
        assert (reading.calls, reading.content) == ((), "Hm. ")
        assert reading.reasoning.strip() == HERMES

    @ALL
    def test_calls_of_every_format_in_thought_are_thought(self, format: str) -> None:
        call = SPELLINGS[format].spell([EVIL])
        for text in (f"<think>\nperhaps {call}\nno\n</think>\n\nNo.", f"<think>{call}", f"<thinking>{call}</thinking>"):
            assert read_calls(text, TOOLS).calls == ()

    @ALL
    def test_a_call_without_a_marker_is_the_whole_message_behind_thought(self, format: str) -> None:
        text = f"<think>\nhm\n</think>\n\n{SPELLINGS[format].spell([OSLO])}"
        assert got(read_calls(text, TOOLS)) == [OSLO]

    def test_thought_within_thought_is_counted(self) -> None:
        reading = read_calls(f"<think>a <think>b</think> {HERMES}\n</think>\nDone.", TOOLS)
        assert (reading.calls, reading.content) == ((), "Done.")

    @for_each(
        "closing", ["</think>", "</thinking>", "[/THINK]", "<|END_THINKING|>", "</seed:think>", "<|close|>think<|sep|>"]
    )
    def test_before_a_closing_tag_that_was_never_opened_all_was_thought(self, closing: str) -> None:
        reading = read_calls(f"I could {HERMES} hm\n{closing}\n\n{GOOD}", TOOLS)
        assert got(reading) == [OSLO]
        assert reading.content == ""
        assert reading.reasoning == f"I could {HERMES} hm\n"

    def test_what_was_shown_before_such_a_tag_is_taken_back(self) -> None:
        reader = CallReader(TOOLS)
        pieces = [*reader.feed("I could look."), *reader.feed("\n</think>\n\nIt is"), *reader.feed(" so.")]
        last, reading = reader.close()
        assert [*pieces, *last] == [
            ContentSegment(text="I could look."),
            ContentSegment(text="\n"),
            ReclassifiedSegment(text="I could look.\n", removed=14),
            ContentSegment(text="It is"),
            ContentSegment(text=" so."),
        ]
        assert (reading.content, reading.reasoning) == ("It is so.", "I could look.\n")

    def test_content_before_an_earlier_thought_is_kept_when_later_content_turns_out_to_be_thought(self) -> None:
        text = "One.\n<think>two</think>\nThree.\n</think>\nFour."
        reading = read_calls(text, TOOLS)
        assert (reading.content, reading.reasoning) == ("One.\n\nFour.", "two\nThree.\n")
        reader = CallReader(TOOLS)
        pieces = [piece for character in text for piece in reader.feed(character)]
        last, whole = reader.close()
        assert whole == reading
        assert ReclassifiedSegment(text="\nThree.\n", removed=8) in [*pieces, *last]

    def test_a_message_that_begins_with_a_call_did_not_think_before_it(self) -> None:
        reading = read_calls(f"{GOOD}\n</think>\nDone.", TOOLS)
        assert got(reading) == [OSLO]
        assert reading.content.strip() == "Done."

    def test_thought_comes_as_thought_while_it_arrives(self) -> None:
        reader = CallReader(TOOLS)
        assert reader.feed("<think>I see") == [ReasoningSegment(text="I see")]
        assert reader.feed(" a way</thi") == [ReasoningSegment(text=" a way")]
        assert reader.feed("nk>So.") == [ContentSegment(text="So.")]


QUOTATIONS = [
    "The raw stream is:\n\n```text\n%s\n```\n\nNothing ran.",
    "Such a block:\n\n```\n%s\n```\n\nNothing ran.",
    "Such a block:\n\n~~~~json\n%s\n~~~~\nNothing ran.",
    "```python\n%s\n```",
    "```diff\n%s\n```",
    "For example, this format would do:\n\n```\n%s\n```",
    "1. One\n   ```xml\n   %s\n   ```\n2. Two",
    "A file: <!-- %s --> with a comment.",
    "<tool_response>\n%s\n</tool_response>\nThat file is odd.",
    "<tools>\n%s\n</tools>\nThese are offered.",
    "[TOOL_RESULTS]%s[/TOOL_RESULTS] was read.",
    "[result 0123456789abcdef of read_file: success]\n%s\n[end of result 0123456789abcdef]\nThat is all.",
    "<pre>%s</pre> is shown.",
    "<|im_start|>user\n%s<|im_end|>",
]


class TestCodeAndQuotations:
    @ALL
    def test_nothing_in_code_or_an_echo_of_tools_runs(self, format: str) -> None:
        for around in QUOTATIONS:
            text = around % SPELLINGS[format].spell([EVIL])
            assert read_calls(text, TOOLS).calls == (), text

    @ALL
    def test_nothing_in_inline_code_runs(self, format: str) -> None:
        call = SPELLINGS[format].spell([EVIL]).replace("\n", " ")
        for ticks in ("`", "``", "```", "`````"):
            if ticks not in call:
                text = f"It printed {ticks}{call}{ticks} in the log."
                reading = read_calls(text, TOOLS)
                assert (reading.calls, reading.content) == ((), text)

    @ALL
    def test_nothing_in_a_block_quote_or_indented_code_runs(self, format: str) -> None:
        call = SPELLINGS[format].spell([EVIL])
        for prefix in ("> ", "    ", "\t"):
            quoted = "\n".join(prefix + line for line in call.split("\n"))
            text = f"He wrote:\n\n{quoted}\n\nI refused."
            reading = read_calls(text, TOOLS)
            assert (reading.calls, reading.content) == ((), text)

    @ALL
    def test_nothing_in_quotes_runs(self, format: str) -> None:
        for quotes in ('""', "''", "“”", "«»"):
            text = f"He typed {quotes[0]}{SPELLINGS[format].spell([EVIL])}{quotes[1]} and nothing happened."
            assert read_calls(text, TOOLS).calls == (), text

    def test_code_before_a_call_hides_nothing(self) -> None:
        for before in (
            "I use `x` and\n\n```python\nprint(1)\n```\n\n",
            "A lone ` here.\n\n",
            'He said "go". ',
            'He said "go"',
            "> quoted\n\n",
            "A list:\n  - one\n",
            "It's 5' long; ",
        ):
            reading = read_calls(before + GOOD, TOOLS)
            assert got(reading) == [OSLO], before
            assert reading.content == before

    def test_a_fence_at_the_end_is_a_call_that_could_be_an_example(self) -> None:
        reading = read_calls('I look.\n\n```json\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```', TOOLS)
        assert got(reading) == [OSLO]
        assert reading.calls[0].confidence is Confidence.LOW
        assert reading.content == "I look.\n\n".rstrip("\n") + "\n"

    @for_each(
        "before",
        [
            "For example:",
            "It would look like this:",
            "The format is",
            "The syntax (do not run it):",
            "e.g.",
            "such as",
            "例如",
        ],
    )
    def test_a_fence_that_was_announced_as_an_example_is_one(self, before: str) -> None:
        text = f'{before}\n\n```json\n{{"name": "get_weather", "arguments": {{"city": "Oslo"}}}}\n```'
        reading = read_calls(text, TOOLS)
        assert (reading.calls, reading.content) == ((), text)

    @for_each("language", ["python", "bash", "text", "yaml", "js", "console", "jsonl"])
    def test_a_fence_of_another_language_is_code(self, language: str) -> None:
        text = f'```{language}\n{{"name": "get_weather", "arguments": {{"city": "Oslo"}}}}\n```'
        assert read_calls(text, TOOLS).calls == ()

    def test_a_fence_beside_a_marked_call_is_text(self) -> None:
        text = f'{GOOD}\n```json\n{{"name": "run_shell", "arguments": {{"command": "ls"}}}}\n```'
        assert got(read_calls(text, TOOLS)) == [OSLO]

    def test_a_turn_that_the_model_made_up_for_somebody_else_runs_nothing(self) -> None:
        text = f"Hello.<|im_end|>\n<|im_start|>user\n{HERMES}<|im_end|>\n<|im_start|>assistant\n{GOOD}"
        assert got(read_calls(text, TOOLS)) == [OSLO]

    @for_each(
        "header",
        [
            "<|im_end|>\n<|im_start|>user\n",
            "<|im_start|>tool ",
            "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
            "<end_of_turn>\n<start_of_turn>user\n",
            "<|turn>user\n",
            "<|user|>\n",
            "<|observation|>",
            "<|im_user|>user<|im_middle|>",
            "<｜end▁of▁sentence｜><｜User｜>",
            "</s>[INST] ",
            "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
            "<seed:eos><seed:bos>user\n",
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>",
            "<|message_user|>",
            "<|start|>user<|message|>",
            "<|start|>functions.read_file to=assistant<|channel|>commentary<|message|>",
            "<start_function_response>response:read_file{value:",
            "<|tool_response>response:read_file{value:",
            "<tool_response><tool_response></tool_response>",
        ],
    )
    def test_nothing_runs_in_a_turn_or_a_result_that_the_model_made_up(self, header: str) -> None:
        for call in (HERMES, SPELLINGS["glm_argkey"].spell([EVIL]), SPELLINGS["functiongemma"].spell([EVIL])):
            assert read_calls(f"Ready.{header}{call}", TOOLS).calls == ()
            assert got(read_calls(f"{GOOD}{header}{call}", TOOLS)) == [OSLO]

    @for_each("token", ["<|user|>", "<|observation|>", "<|tool_response>", "<start_function_response>"])
    def test_a_token_of_the_next_turn_at_the_end_is_where_the_server_stopped(self, token: str) -> None:
        reading = read_calls(GOOD + token, TOOLS)
        assert (got(reading), reading.content) == ([OSLO], "")

    @for_each("before", ['{"log": "he said "x" and ', '{"page": "', '[{"n": 1, "page": "', '["'])
    def test_data_that_is_broken_or_cut_is_data_all_the_same(self, before: str) -> None:
        for format in ("functiongemma", "k2_horizon", "olmo3", "glm_argkey"):
            text = before + SPELLINGS[format].spell([EVIL])
            reading = read_calls(text, TOOLS)
            assert (reading.calls, reading.content) == ((), text)

    def test_a_call_behind_data_is_a_call(self) -> None:
        reading = read_calls(f'{{"a": "<think>"}}\n{GOOD}', TOOLS)
        assert got(reading) == [OSLO]
        assert reading.content == '{"a": "<think>"}\n'

    def test_a_closing_tag_of_thought_in_inline_code_ends_none(self) -> None:
        reading = read_calls(f"<think>the tag `</think>` ends it; then {HERMES}</think>No.", TOOLS)
        assert (reading.calls, reading.content) == ((), "No.")

    @for_each("opening", ["<think>", "<|channel|>analysis<|message|>", "<|channel|>final<|message|>It is\n\n"])
    def test_a_stray_quote_before_thought_or_a_header_hides_neither(self, opening: str) -> None:
        assert read_calls(f'"{opening}{HERMES}', TOOLS).calls == ()

    def test_data_that_holds_markup_is_data(self) -> None:
        for text in (
            json.dumps({"log": HERMES, "n": 1}),
            json.dumps([HERMES]),
            json.dumps({"log": "<function=run_shell><parameter=command>ls</parameter></function>"}),
        ):
            reading = read_calls(text, TOOLS)
            assert (reading.calls, reading.content) == ((), text)


PAIRS = [
    ("<analysis>\n", "\n</analysis>"),
    ("<scratchpad>", "</scratchpad>"),
    ("<Reflection>", "</reflection >"),
    ('<example index="1">\n', "\n</example>"),
    ("<document><source>a.txt</source>\n", "</document>"),
    ("<inner_monologue>\n<step>1</step> ", "</inner_monologue>"),
    ("<my:notes.v2>", "</my:notes.v2>"),
    ("<思考>", "</思考>"),
    ("<🤔>", "</🤔>"),
    ("<1-note>", "</1-note\n>"),
    ("[analysis]\n", "\n[/analysis]"),
    ("<input>", "</input>"),
    ("<|scratchpad|>", "<|/scratchpad|>"),
    ("<|begin_of_draft|>", "<|end_of_draft|>"),
    ("<｜note▁start｜>", "<｜note▁end｜>"),
    ("<p>", "</p>"),
]
MARKED = sorted(name for name, each in SPELLINGS.items() if each.marked)


class TestTagsOfNoFormat:
    @for_each("format", MARKED)
    def test_a_call_in_a_pair_of_them_is_text(self, format: str) -> None:
        call = SPELLINGS[format].spell([EVIL])
        for opening, closing in PAIRS:
            text = f"Hm. {opening}I could\n{call}\nor not{closing}\n\nI ask first."
            reading = read_calls(text, TOOLS)
            assert (reading.calls, reading.diagnostics) == ((), ())
            if format != "kimi_k3":  # Marks of its parts are never shown.
                assert reading.content == text

    @for_each("format", MARKED)
    def test_a_call_behind_the_pair_is_a_call(self, format: str) -> None:
        call = SPELLINGS[format].spell([OSLO])
        for opening, closing in PAIRS:
            before = f"Hm. {opening}perhaps {HERMES}{closing}\n\n"
            reading = read_calls(before + call, TOOLS)
            assert got(reading) == [OSLO]
            assert reading.content == before

    @pytest.mark.some(1)
    @pytest.mark.parametrize(("opening", "closing"), PAIRS)
    def test_every_split_gives_the_same(self, opening: str, closing: str) -> None:
        text = f"Hm. {opening}perhaps {HERMES} {closing}\n{GOOD}\nSo: {opening}{GOOD}"
        whole = read_calls(text, TOOLS)
        for at in range(1, len(text)):
            reader = CallReader(TOOLS)
            reader.feed(text[:at])
            reader.feed(text[at:])
            assert reader.close()[1] == whole, text[:at]

    def test_pairs_are_counted(self) -> None:
        text = f"<note>a <note>b</note> {HERMES} <b>c</b> {HERMES}</note> {HERMES}"
        assert len(read_calls(text, TOOLS).calls) == 1

    @for_each("closing", ["`</note>`", '"</note>"', "“</note>”"])
    def test_a_closing_tag_that_is_only_spoken_of_closes_nothing(self, closing: str) -> None:
        text = f"<note>It ends with {closing}, so {HERMES}</note>\nNo."
        assert (read_calls(text, TOOLS).calls, read_calls(text, TOOLS).content) == ((), text)

    @for_each("name", ["answer", "response", "output", "OUTPUT", "tool_code", "functions"])
    def test_wrappers_of_answers_and_of_calls_change_nothing(self, name: str) -> None:
        reading = read_calls(f"<{name}>\n{GOOD}\n</{name}>", TOOLS)
        assert got(reading) == [OSLO]
        assert reading.calls[0].confidence is Confidence.HIGH

    @for_each(
        "before",
        [
            "One.<br>\nTwo.<br/>\n",
            "<hr>\n",
            "A List<T>, a Map<String, List<T>> and x <y and z. ",
            "Replace <name> by yours. ",
            "3 < n and n > 2: ",
            "<b>Now</b> ",
            "<s>",
            "<|begin_of_text|>",
            "See [note] and x <5, a <- b. ",
            "I would like to look. ",
            "An example of this is in the file. ",
            "Let me be precise and read it:\n",
        ],
    )
    def test_void_tags_generics_and_placeholders_are_no_pairs(self, before: str) -> None:
        for text in (before + GOOD, f"{before}{GOOD}<br></br>", f"{before}{GOOD}</s><|end_of_text|>"):
            reading = read_calls(text, TOOLS)
            assert got(reading) == [OSLO], text
            assert reading.calls[0].confidence is Confidence.HIGH

    @for_each(
        "text",
        [
            f"<action>{GOOD}</action>",
            f"I look.\n<next_action>\n{GOOD}\n</next_action>",
            f"<analysis>\nI look. {GOOD}",
            f"I could {GOOD} hm\n</scratchpad>\nNo.",
            f"The raw output would be:\n{GOOD}",
            f"The raw output would be: {GOOD}\nand {GOOD}",
            f"It is written like this, for example: {GOOD}",
            f"e.g. {GOOD}",
            f"The page says: {GOOD}",
            f"{'<x>' * 2000}<note>{GOOD}",
        ],
    )
    def test_what_may_have_been_meant_is_left_to_the_user(self, text: str) -> None:
        calls = read_calls(text, TOOLS).calls
        assert calls
        assert {call.confidence for call in calls} == {Confidence.LOW}

    def test_only_text_that_a_pair_may_enclose_is_held_back(self) -> None:
        reader = CallReader(TOOLS)
        assert reader.feed("<note>I see") == [ContentSegment(text="<note>I see")]
        assert reader.feed(f" {GOOD} so") == [ContentSegment(text=" ")]
        assert reader.feed("</note> That") == [ContentSegment(text=f"{GOOD} so</note> That")]


class TestChannels:
    def test_only_what_is_addressed_to_a_tool_runs(self) -> None:
        for channel in ("final", "commentary"):
            text = f"<|channel|>{channel}<|message|>Look: {HERMES}<|end|>"
            reading = read_calls(text, TOOLS)
            assert (reading.calls, reading.content) == ((), f"Look: {HERMES}")

    @for_each("header", [" to=user", "<|start|>assistant to=user", "to=user"])
    def test_text_for_the_user_is_content(self, header: str) -> None:
        reading = read_calls(f"{header}<|message|>You write it so: {HERMES}<|eot|>", TOOLS)
        assert (reading.calls, reading.content) == ((), f"You write it so: {HERMES}")

    def test_text_to_the_model_itself_is_thought(self) -> None:
        text = f" to=self<|message|>I could {HERMES}<|eom|><|start|>assistant to=user<|message|>Hello.<|eot|>"
        reading = read_calls(text, TOOLS)
        assert (reading.calls, reading.content, reading.reasoning) == ((), "Hello.", f"I could {HERMES}")

    def test_the_answer_and_a_call_are_in_separate_messages(self) -> None:
        text = (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
            '{"city": "Oslo"}<|call|>'
        )
        reading = read_calls(text, TOOLS)
        assert got(reading) == [OSLO]
        assert (reading.content, reading.reasoning) == ("I look.", "Hm.")

    def test_a_recipient_that_is_no_tool_is_reported(self) -> None:
        reading = read_calls('<|channel|>analysis to=browser.search<|message|>{"query": "x"}<|call|>', TOOLS)
        assert reading.calls == ()
        assert [each.name for each in reading.diagnostics] == ["browser.search"]

    def test_the_response_of_kimi_k3_runs_nothing(self) -> None:
        call = SPELLINGS["kimi_k3"].spell([EVIL])
        text = f"<|open|>response<|sep|>So: {HERMES}{call}<|close|>response<|sep|>{SPELLINGS['kimi_k3'].spell([OSLO])}"
        reading = read_calls(text, TOOLS)
        assert got(reading) == [OSLO]
        assert reading.content == f"So: {HERMES}{call}"


class TestWhatIsLeft:
    @for_each(
        "text",
        [
            "",
            "   \n",
            "Hello, world!\nWhat's up?",
            " leading and trailing \n\n",
            "a < b && c > d, <b>bold</b>, <function>, <|im_end|>",
            "[special delivery] arrives [tomorrow]",
            "Use [link](url). [1, 2, 3] `x` ``y`` ```z```",
            "if (x > 0) { return { name: x }; }",
            '{"name": "jeff"}',
            '{"result": 3}',
            "get_weather is a tool",
            "to=do: buy milk",
            "| name | arguments |\n|---|---|\n| run_shell | {} |",
            "&lt;tool_call&gt;{}&lt;/tool_call&gt;",
            "The required Action: run_shell is documented.",
            "Action: None\nAction Input: {}",
            ">>> run_shell()\nNone",
            "```\nplain\n```",
            "final answer",
            "assistant",
            "commentary to the text",
            "\ud800 half",
        ],
    )
    def test_text_without_calls_comes_out_as_it_went_in(self, text: str) -> None:
        for offered in (TOOLS, {}):
            reading = read_calls(text, offered)
            assert reading == Reading(content=text)

    def test_white_space_around_removed_text_is_dropped_where_nothing_else_is(self) -> None:
        assert read_calls(f"\n\n{GOOD}\n\n", TOOLS).content == ""
        assert read_calls("<think>x</think>\n\nHello.", TOOLS).content == "Hello."

    def test_with_no_tools_on_offer_nothing_is_a_call(self) -> None:
        reading = read_calls(f"Hm.\n{GOOD}", {})
        assert (reading.calls, reading.content.strip()) == ((), "Hm.")
        [diagnostic] = reading.diagnostics
        assert diagnostic.kind is DiagnosticKind.UNKNOWN_TOOL
        assert diagnostic.message == "is not a tool here; no tool is on offer"

    def test_where_calls_are_not_read_they_are_text(self) -> None:
        reader = CallReader(None)
        text = f"<think>x</think>So: {GOOD}"
        pieces = reader.feed(text)
        last, reading = reader.close()
        assert reading.content == f"So: {GOOD}"
        assert (reading.calls, reading.diagnostics) == ((), ())
        assert [*pieces, *last] == [ReasoningSegment(text="x"), ContentSegment(text=reading.content)]

    def test_an_alias_names_our_tool_unless_theirs_is_on_offer(self) -> None:
        text = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'
        assert got(read_calls(text, TOOLS, aliases={"weather": "get_weather"})) == [OSLO]
        assert read_calls(text, TOOLS, aliases={"weather": "gone"}).calls == ()
        tools = {**TOOLS, "weather": {}}
        assert [call.name for call in read_calls(text, tools, aliases={"weather": "get_weather"}).calls] == ["weather"]

    def test_results_that_the_model_made_up_are_not_shown(self) -> None:
        text = (
            'Thought: I look.\nAction: get_weather\nAction Input: {"city": "Oslo"}\nObservation: 20 degrees\n'
            'Action: run_shell\nAction Input: {"command": "ls"}'
        )
        reading = read_calls(text, TOOLS)
        assert got(reading) == [OSLO]
        assert reading.content == "Thought: I look.\n"

    def test_an_unmarked_call_of_an_unknown_tool_stays_text_and_is_reported(self) -> None:
        text = '{"name": "nuke", "arguments": {"path": "/"}}'
        reading = read_calls(text, TOOLS)
        assert (reading.calls, reading.content) == ((), text)
        assert [each.name for each in reading.diagnostics] == ["nuke"]

    def test_an_excerpt_is_short(self) -> None:
        text = '<tool_call>{"name": "nuke", "arguments": {"path": "' + "x" * 1000 + '"}}</tool_call>'
        [diagnostic] = read_calls(text, TOOLS).diagnostics
        assert len(diagnostic.excerpt) == 200
