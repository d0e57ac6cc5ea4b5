"""Audit files that were changed by somebody: what they say is computed again, shown as a claim, or signed."""

import json
import stat
from pathlib import Path

import pytest

import whyformer
from commands import invoke, refusal, run
from conftest import FILM
from whyformer.api.tolerances import BY_DTYPE, tolerance
from whyformer.errors import WhyformerError


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    private = tmp_path_factory.mktemp("keys") / "audit.key"
    return private, whyformer.make_keys(private)


def change(path, *place, to):
    document = json.loads(path.read_text())
    *before, last = place
    inner = document
    for step in before:
        inner = inner[step]
    inner[last] = to
    path.write_text(json.dumps(document))


def failures(path, **options):
    return [check.name for check in whyformer.verify(path, **options).checks if not check.agrees]


def test_a_tolerance_in_the_file_does_not_count(audit):
    scores = json.loads(audit.read_text())["explanation"]["parts"]["text"]["scores"]
    change(audit, "explanation", "parts", "text", "scores", 1, to=scores[1] + 0.5 * max(scores))
    change(audit, "tolerance", to=1e9)
    assert failures(audit) == ["scores", "tolerance"]


def test_a_huge_score_does_not_make_the_others_agree(audit):
    change(audit, "explanation", "parts", "text", "scores", 0, to=1e30)
    finding = next(check.finding for check in whyformer.verify(audit).checks if check.name == "scores")
    assert "token 1 of text" in finding
    assert "1e+30" in finding


def test_the_probability_has_the_tolerance_of_the_precision_whatever_the_method(bert, tmp_path):
    explanation = whyformer.explain(FILM, str(bert), method="lrp")
    explanation.save(tmp_path / "film.audit.json")
    change(tmp_path / "film.audit.json", "explanation", "probability", to=explanation.probability + 0.01)
    assert failures(tmp_path / "film.audit.json") == ["probability"]


def test_tolerances_are_the_librarys_by_method_and_precision():
    assert [tolerance("rollout", dtype) for dtype in BY_DTYPE] == list(BY_DTYPE.values())
    assert tolerance("lrp", "float64") == 1e-6
    assert tolerance("lrp", "float32") == 0.2
    assert tolerance("rollout", "int4") == 1e-3


FORGERIES = [
    (("explanation", "target"), "bad", "target"),
    (("explanation", "probability"), 0.99, "probability"),
    (("explanation", "model"), "gpt-7", "explanation"),
    (("explanation", "notes"), ["Everything is fine."], "explanation"),
    (("explanation", "completeness"), 0.0, "explanation"),
    (("explanation", "approved"), True, "explanation"),
    (("explanation", "parts", "text", "tokens", 1), "movie", "scores"),
    (("explanation", "parts", "text", "texts"), ["the film was bad"], "explanation"),
    (("explanation", "parts", "text", "offsets", 1), [0, 3], "explanation"),
    (("explanation", "parts", "text", "segments", 1), 1, "explanation"),
    (("explanation", "parts", "text", "layout"), "patches", "explanation"),
    (("model", "name"), "gpt-7", "model"),
    (("model", "architecture"), "GPT7", "model"),
    (("doctor", "is_healthy"), False, "doctor"),
    (("doctor", "problems"), ["All is well."], "doctor"),
    (("doctor", "notes"), ["Certified."], "doctor"),
    (("doctor", "method"), "certified", "doctor"),
    (("doctor", "logit_difference"), 0.5, "doctor"),
    (("doctor", "largest_logit"), 99.0, "doctor"),
    (("controls",), {"suite": "all", "figures": []}, "controls"),
    (("tolerance",), 1e-12, "tolerance"),
]


@pytest.mark.parametrize(("place", "value", "name"), FORGERIES, ids=lambda value: str(value)[:40])
def test_every_field_that_can_be_computed_again_is_compared(audit, place, value, name):
    change(audit, *place, to=value)
    assert failures(audit) == [name]


def test_every_field_of_the_file_is_compared_or_said_not_to_be(audit):
    document = json.loads(audit.read_text())
    compared = {"format", "version", "question", *(check.name for check in whyformer.verify(audit).checks)}
    assert document.keys() <= compared | set(whyformer.verify(audit).not_checked)


def test_fields_that_nothing_is_compared_with_are_named(audit):
    change(audit, "approved_by", to="the board")
    change(audit, "created", to="1999-01-01")
    verification = whyformer.verify(audit)
    assert verification.not_checked == ("approved_by", "created", "computation")
    assert "not checked: approved_by, created, computation" in str(verification)
    assert verification.to_dict()["not_checked"] == list(verification.not_checked)


def test_what_another_version_may_have_worded_otherwise_is_not_compared_and_said_so(audit):
    change(audit, "computation", "versions", "whyformer", to="0.0.1")
    change(audit, "doctor", "notes", to=["worded otherwise"])
    verification = whyformer.verify(audit)
    assert verification.agrees
    assert {"explanation.notes", "tolerance", "doctor", "controls"} < set(verification.not_checked)


def test_a_key_that_occurs_twice_is_refused(audit):
    text = audit.read_text().replace('"target"', '"target": "bad", "target"', 1)
    audit.write_text(text)
    with pytest.raises(WhyformerError, match="the key 'target' occurs twice"):
        whyformer.verify(audit)


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("computation", "seed"), 2**70, r"its seed is 1180591620717411303424, not an integer from 0 to 2\*\*64 - 1"),
        (("computation", "seed"), -1, "its seed is -1, not an integer from 0"),
        (("computation", "seed"), True, "its seed is True, not an integer"),
        (("question", "readout"), 1.5, "its readout is 1.5, not a name, an integer or a list of numbers"),
        (("question", "readout"), {"a": 1}, "its readout is .*, not a name"),
        (("question", "readout"), [[1], [2, 3]], "cannot be verified: ValueError"),
        (("question", "readout"), ["a"], "its readout is .*, not a list of numbers"),
        (("question", "readout"), [1.0, 2.0], "The read-out has 2 weights, the stream 7 tokens"),
        (("question", "readout"), "nowhere", "No read-out named .nowhere."),
        (("question", "readout"), 10**30, "."),
        (("question", "target"), {"kind": "range", "ends": [1, 2, 0]}, "cannot be verified"),
        (("question", "target"), 10**30, "."),
        (("explanation", "options"), {"first_block": 10**30}, "."),
        (("explanation", "options"), {"readout": 0}, "cannot be verified: TypeError"),
        (("model", "place"), "x" * 5000, "No model 'x+…'"),
        (("model", "place"), "\0", "No model"),
        (("model", "place"), "https://example.org/x", "URLs are not fetched"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_odd_values_get_one_line(audit, place, value, reason):
    change(audit, *place, to=value)
    with pytest.raises(WhyformerError, match=reason) as error:
        whyformer.verify(audit)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, '{"a":' * 500 + "1" + "}" * 500])
def test_deep_nesting_gets_one_line(audit, content):
    audit.write_text(content)
    with pytest.raises(WhyformerError, match="more than 100 levels of lists and objects"):
        whyformer.verify(audit)


def test_a_signed_file_is_verified_by_its_public_key(audit, keys):
    private, public = keys
    whyformer.sign(audit, private)
    verification = whyformer.verify(audit, key=public)
    assert verification.agrees
    assert (verification.checks[0].name, verification.not_checked) == ("signature", ())
    assert whyformer.verify(audit).not_checked == ("created", "computation", "signature, without a key")


@pytest.mark.parametrize(
    "place", [("created",), ("computation", "seed"), ("computation", "versions", "torch"), ("model", "revision")]
)
def test_whatever_is_changed_in_a_signed_file_is_found(audit, keys, place):
    whyformer.sign(audit, keys[0])
    change(audit, *place, to=7)
    assert "signature" in failures(audit, key=keys[1])


def test_another_key_and_no_signature_are_found(audit, keys, tmp_path):
    assert failures(audit, key=keys[1]) == ["signature"]
    whyformer.sign(audit, keys[0])
    assert failures(audit, key=whyformer.make_keys(tmp_path / "other.key")) == ["signature"]
    for odd in (3, {}, {"algorithm": "none", "value": ""}, {"algorithm": "Ed25519", "value": "§"}):
        change(audit, "signature", to=odd)
        assert failures(audit, key=keys[1]) == ["signature"]


def test_a_signature_does_not_depend_on_how_the_json_is_laid_out(audit, keys):
    whyformer.sign(audit, keys[0])
    document = json.loads(audit.read_text())
    audit.write_text(json.dumps(dict(reversed(document.items())), indent=4, ensure_ascii=False))
    assert whyformer.verify(audit, key=keys[1]).agrees


def test_keys_are_private_and_never_overwritten(keys):
    private, public = keys
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert b"PRIVATE" not in public.read_bytes()
    with pytest.raises(WhyformerError, match="exists, and keys are never overwritten"):
        whyformer.make_keys(private)


def test_what_is_no_key_gets_one_line(audit, keys, tmp_path):
    with pytest.raises(WhyformerError, match=r"No private key in '.*film.audit.json': it is not a key in PEM"):
        whyformer.sign(audit, audit)
    with pytest.raises(WhyformerError, match=r"No private key in '.*': it is not a key in PEM"):
        whyformer.sign(audit, keys[1])
    with pytest.raises(WhyformerError, match=r"No public key in '.*nothing': No such file"):
        whyformer.verify(audit, key=tmp_path / "nothing")
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(WhyformerError, match="is not an audit file"):
        whyformer.sign(tmp_path / "x.json", keys[0])


def test_the_commands_make_keys_sign_and_verify(own_bert, tmp_path):
    key, audit = tmp_path / "audit.key", tmp_path / "film.audit.json"
    run("keygen", key)
    run("explain", FILM, "--model", own_bert, "--out", audit, "--sign", key, "--quiet")
    assert run("verify", audit, "--key", f"{key}.pub").splitlines()[-1] == "verified"
    change(audit, "created", to="yesterday")
    result = invoke("verify", audit, "--key", f"{key}.pub")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (1, "not verified: signature")
    refused = refusal("explain", FILM, "--model", own_bert, "--out", tmp_path / "film.json", "--sign", key)
    assert "signs audit files: add --out NAME.audit.json" in refused
    assert "No private key" in refusal("explain", FILM, "--out", audit, "--sign", tmp_path / "nothing")


def test_scores_that_rounding_changes_are_said_not_to_be_checked(tmp_path):
    cat = Path(whyformer.__file__).parent / "zoo" / "cat.jpg"
    whyformer.explain(str(cat), "mini-vit", "cat", "lrp").save(tmp_path / "cat.audit.json")
    verification = whyformer.verify(tmp_path / "cat.audit.json")
    assert verification.agrees
    assert "explanation.scores, which are unstable in float32" in verification.not_checked
    assert "scores" not in {check.name for check in verification.checks}
