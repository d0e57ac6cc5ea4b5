"""Facts World: small documents about invented people and things, with exact ground truth for each answer.

>>> from whyformer.facts import example, without
>>> story = example(3, hops=2, kind="plain", sentences=4)
>>> story.question, story.answer
('Where is the mirror?', 'The mirror is in Manila.')
>>> causes = story.questions[0].causes[0]
>>> [story.sentences[number].text for number in causes]
['Vera is in Manila.', 'Paul gave the mirror to Vera.']
>>> without(story, causes).answer
'Unknown.'
"""

from whyformer.facts.agent_facts import AgentFact
from whyformer.facts.agent_register import AGENT_TOOLS, AgentSentence, Episode, episode
from whyformer.facts.document_generation import KINDS, example, examples
from whyformer.facts.documents import Example, Question, Sentence, question, without
from whyformer.facts.interpreter import UNKNOWN, Fact
from whyformer.facts.names import COLOURS, CONTAINERS, JOBS, PEOPLE, POOLS, SPLITS, THINGS, TOWNS
from whyformer.facts.prose_register import Passage, ProseQuestion, ProseSentence, prose, word_overlap
from whyformer.facts.statements import Statement, SupportCase, support_case

__all__ = [
    "AGENT_TOOLS",
    "COLOURS",
    "CONTAINERS",
    "JOBS",
    "KINDS",
    "PEOPLE",
    "POOLS",
    "SPLITS",
    "THINGS",
    "TOWNS",
    "UNKNOWN",
    "AgentFact",
    "AgentSentence",
    "Episode",
    "Example",
    "Fact",
    "Passage",
    "ProseQuestion",
    "ProseSentence",
    "Question",
    "Sentence",
    "Statement",
    "SupportCase",
    "episode",
    "example",
    "examples",
    "prose",
    "question",
    "support_case",
    "without",
    "word_overlap",
]
