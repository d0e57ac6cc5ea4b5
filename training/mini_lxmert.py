"""mini-lxmert: a stock LxmertForQuestionAnswering that answers questions about Shapes World from its regions.

    PYTHONPATH=src python training/mini_lxmert.py --out DIR --minutes 9 --seed 0

Its last minute trains two blind twins, which show what the question alone and the scene alone are worth.
"""

from transformers import BertTokenizer, LxmertConfig, LxmertForQuestionAnswering

import answering
import course
from answering import Reading, School
from asking import POSITIONS, Batch
from whyformer.scenes import ANSWERS, FEATURES


def new_model(tokenizer: BertTokenizer) -> LxmertForQuestionAnswering:
    return LxmertForQuestionAnswering(
        LxmertConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            num_attention_heads=4,
            intermediate_size=384,
            l_layers=2,
            r_layers=2,
            x_layers=2,
            visual_feat_dim=FEATURES,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=POSITIONS,
            pad_token_id=tokenizer.pad_token_id,
            num_qa_labels=len(ANSWERS),
            id2label=dict(enumerate(ANSWERS)),
            label2id={answer: label for label, answer in enumerate(ANSWERS)},
        )
    )


def reading_of(model: LxmertForQuestionAnswering, batch: Batch) -> Reading:
    output = model(
        input_ids=batch.ids,
        attention_mask=batch.mask,
        token_type_ids=batch.types,
        visual_feats=batch.features,
        visual_pos=batch.boxes,
        output_hidden_states=True,
    )
    before_the_question_is_seen = output.vision_hidden_states[model.config.r_layers - 1]
    return Reading(output.question_answering_score, before_the_question_is_seen)


def main() -> None:
    options = answering.options_of_the_call(__doc__)
    school = School(new_model, reading_of, options)
    steps = school.train(keep=75)
    model = course.reloaded(LxmertForQuestionAnswering, options)
    scores = school.exam.scores(model, reading_of)
    course.say(scores, options.out)
    blindings = {"question_only": school.asker.without_regions, "image_only": school.asker.without_words}
    seconds = course.seconds_left(options, keep=10) / len(blindings)
    for name, blinded in blindings.items():
        scores[f"accuracy_of_the_{name}_twin"] = school.blind_scores(blinded, seconds=seconds)
    course.finish(scores, model, options, steps=steps, questions_seen=steps * options.batch)


if __name__ == "__main__":
    main()
