#!/usr/bin/env python3
"""Dialogues, and what transformers' apply_chat_template makes of them with the templates of the known families.

    tests/golden/chat/make.py [FOLDER]          needs the Python package transformers

Writes cases.json: {"now": seconds, "tokens": {...}, "dialogues": {name: {messages, generation_prompt, tools?}},
"texts": {template: {dialogue: text, or null where transformers raises}}} for the *.jinja beside this script (or in
FOLDER), and "corners": [{source, text}], small templates over the message Hello. The date is fixed. README.md says where the templates are from.
"""
import datetime
import glob
import json
import os
import sys

from transformers.utils import chat_template_utils

NOW = datetime.datetime(2026, 2, 3, 4, 5, 6)
TOKENS = {'bos_token': '<s>', 'eos_token': '</s>', 'unk_token': '<unk>', 'pad_token': '<pad>'}


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = Fixed


def m(role, content, **more):
    return {'role': role, 'content': content, **more}


UGLY = 'Quotes "double" \'single\' `back`, back\\slash, {{ braces }} {% tags %} {# notes #}, <s>[INST]</s> <|im_end|>\n\tTabs\u00a0and\u2003spaces \r\n' \
       'naïve Straße 日本語 🙂👩‍👩‍👧 \u0000\u0001\u007f\u0085\u200b\u2028 e\u0301 & < > '
TOOLS = [{'type': 'function', 'function': {'name': 'get_weather', 'description': 'Get the weather of a "city" – now.',
          'parameters': {'type': 'object', 'properties': {'city': {'type': 'string', 'description': 'The city'}, 'days': {'type': 'integer', 'default': 3}, 'share': {'type': 'number', 'default': 1e-05}},
                         'required': ['city']}, 'return': {'type': 'string'}}}]
CALL = [{'id': 'abcde1234', 'type': 'function', 'function': {'name': 'get_weather', 'arguments': {'city': 'Zürich', 'days': 2, 'deep': [True, None, 1.5]}}}]
DIALOGUES = {
    'system': {'messages': [m('system', ' You are a helpful assistant.\n'), m('user', 'Who are you?'), m('assistant', 'A model. ')]},
    'turns': {'messages': [m('user', ' First?'), m('assistant', 'One.\n'), m('user', 'Second?\n\n'), m('assistant', '\n Two, and\nmore'), m('user', 'Third?'), m('assistant', 'Three')]},
    'one': {'messages': [m('user', 'Hello')]},
    'special': {'messages': [m('system', UGLY), m('user', UGLY), m('assistant', UGLY), m('user', '')], 'generation_prompt': True},
    'prompt': {'messages': [m('user', 'Write a haiku.')], 'generation_prompt': True},
    'long': {'messages': [m('system', 'S')] + [m(r, f'{r} {i}') for i in range(4) for r in ('user', 'assistant')] + [m('user', 'last')], 'generation_prompt': True},
    'thinking': {'messages': [m('user', 'Why?'), m('assistant', '<think>\nHm. So.\n</think>\n\nBecause.'), m('user', 'Really?'), m('assistant', '<think>\nYes\n</think>\n\nYes.')]},
    'reasoning': {'messages': [m('user', 'Why?'), m('assistant', 'Because.', reasoning_content='Hm.\n'), m('user', 'Really?'), m('assistant', 'Yes.', reasoning='Sure?', thinking=None)]},
    'parts': {'messages': [m('system', [{'type': 'text', 'text': 'Sys'}]), m('user', [{'type': 'text', 'text': ' one '}, {'type': 'text', 'text': 'two'}]), m('assistant', 'ok')]},
    'tools': {'messages': [m('system', 'Use tools.'), m('user', 'Weather in Zürich?'), m('assistant', '', tool_calls=CALL), m('tool', '{"degrees": 21}', name='get_weather', tool_call_id='abcde1234'), m('assistant', '21 degrees.'), m('user', 'Thanks')], 'tools': TOOLS, 'generation_prompt': True},
    'roles': {'messages': [m('assistant', 'I begin'), m('user', 'No'), m('user', 'twice'), m('observer', 'hm')]},
}

CORNERS = [
    'a\n',
    'a\r\nb\r',
    '  {% if true %}\n x \n  {% endif %}\ny',
    '  {%+ if true %}x{% endif +%}\ny',
    ' a {{- 1 -}} \n b',
    '{# c #}\n{#- d -#} \n e',
    '{% raw %}{{ x }}{% endraw %}',
    '{{ {\'a\': {\'b\': [1, 2.0, None, True, "it\'s"]}} }}',
    "{{ (1,) }}{{ () }}{{ 1, 'x' }}",
    '{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1e20 }} {{ 1e-5 }}',
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' in 'cat' }} {{ 1 not in [1] }} {{ 1 == 1.0 == true }}",
    "{{ none or 'x' }}{{ 0 and 1 }}{{ not '' }}{{ 'y' if false }}|",
    "{{ 'abcdef'[1:-1] }} {{ 'abc'[::-1] }} {{ [1,2,3,4][::2] }} {{ 'aéz'[1] }} {{ 'abc'[5:] }}|",
    '{{ nothing }}{{ nothing is defined }}{{ messages[0].nope is undefined }}{{ nothing | length }}',
    '{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}',
    '{% set n = namespace(x=1) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}',
    '{% for i in range(5) if i is odd %}{{ loop.index }}{{ loop.last }}{{ i }};{% else %}none{% endfor %}',
    '{% for i in [] %}x{% else %}none{% endfor %}',
    '{% for i in [1,2,3,4] %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}',
    "{% for a, b in {'x': 1, 'y': 2}.items() %}{{ a }}={{ b }}{{ ',' if not loop.last }}{% endfor %}",
    "{% macro f(a, b='d') %}[{{ a }}{{ b }}]{% endmacro %}{{ f(1) }}{{ f(b=2, a='q') }}{{ f() }}",
    '{% set x %}a{{ 1 }}{% endset %}{{ x }}{% filter upper %}b{% endfilter %}{% set y | trim %} c {% endset %}{{ y }}{% with z = 5 %}{{ z }}{% endwith %}{{ z }}',
    "{{ ' x ' | trim }}{{ 'a-b c' | title }}{{ 'hELLO' | capitalize }}{{ [3,1,2] | sort | join(',') }}",
    '{{ {\'b\': 1, \'a\': [1, none, \'xé"\']} | tojson }}',
    "{{ {'b': [1, {}], 'a': []} | tojson(indent=2) }}",
    "{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a\nb\r\n'.splitlines() }}",
    "{{ 'x\ny\n\nz' | indent(2) }}|{{ 'aXbX' | replace('X', '-', 1) }}|{{ 'ab'.replace('', '.') }}",
    "{{ messages | map(attribute='role') | list }}{{ messages | selectattr('role', 'equalto', 'x') | list }}",
    "{% set g = messages | selectattr('role', 'equalto', 'x') %}{{ 'some' if g else 'none' }}{% for i in messages|map(attribute='role') %}{{ i }}{% endfor %}",
    "{{ 'a' 'b' ~ 1 ~ none }}{{ '\\x41\\u00e9\\n' }}{{ 'C' is upper }}{{ 3 is divisibleby 3 }}",
    '{{ 1 if messages is string else 2 }}{{ messages is iterable and messages is not mapping }}',
    "{{ '  a '.lstrip() }}{{ 'abca'.strip('a') }}{{ 'ab'.startswith(('x', 'a')) }}{{ 'aab'.count('a') }}",
    "{{ '12' | int + 1 }}{{ 'x' | int(7) }}{{ '1.5' | float }}{{ 3.7 | int }}{{ none | default('n') }}{{ none | default('n', true) }}",
    "{{ messages[0]['content'] }}{{ messages[-1].content }}{{ messages[0].get('x', 'no') }}",
]


def render(template, dialogue):
    try:
        return chat_template_utils.render_jinja_template(
            conversations=[dialogue['messages']], tools=dialogue.get('tools'), chat_template=template,
            add_generation_prompt=dialogue.get('generation_prompt', False), **TOKENS)[0][0]
    except Exception as error:  # of Jinja, or of Python within the template
        print(f'    {type(error).__name__}: {str(error)[:90]}')
        return None


folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
texts = {}
for path in sorted(glob.glob(os.path.join(folder, '*.jinja'))):
    print(os.path.basename(path))
    template = open(path, encoding='utf-8', newline='').read()
    texts[os.path.basename(path)] = {name: render(template, dialogue) for name, dialogue in DIALOGUES.items()}
hello = {'messages': [m('user', 'Hello')]}
corners = [{'source': source, 'text': render(source, hello)} for source in CORNERS] if len(sys.argv) < 2 else []
now = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())
with open(os.path.join(folder, 'cases.json'), 'w', encoding='utf-8') as file:
    json.dump({'now': now, 'tokens': TOKENS, 'dialogues': DIALOGUES, 'texts': texts, 'corners': corners}, file, ensure_ascii=True, indent=1)
    file.write('\n')
