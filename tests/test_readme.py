"""README.md says what was measured."""

import re

import readme_speed


def test_the_speeds_are_those_in_the_results():
    text = readme_speed.README.read_text(encoding="utf-8")
    assert readme_speed.render() in text, "run: python tests/readme_speed.py"


def test_every_link_into_the_repository_leads_somewhere():
    text = readme_speed.README.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert len(links) > 8
    assert [link for link in links if not (readme_speed.ROOT / link).exists()] == []
