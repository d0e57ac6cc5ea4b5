"""mini-lxmert: a stock LxmertForQuestionAnswering that answers questions about Shapes World from its regions.

    PYTHONPATH=src python training/mini_lxmert.py --out DIR --minutes 9 --seed 0

Its last minute trains two baselines, one that sees only the question and one that sees only the scene.
"""

from transformers import BertTokenizer, LxmertConfig, LxmertForQuestionAnswering

from checkpoints import load_model
from training_loop import log, seconds_left, write_metrics
from vqa_batches import POSITIONS, VqaBatch
from vqa_training import VqaOutput, VqaTraining, read_options
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


def forward(model: LxmertForQuestionAnswering, batch: VqaBatch) -> VqaOutput:
    """The answers, and the regions as they are before they have seen the question."""
    output = model(
        input_ids=batch.ids,
        attention_mask=batch.mask,
        token_type_ids=batch.types,
        visual_feats=batch.features,
        visual_pos=batch.boxes,
        output_hidden_states=True,
    )
    before_cross_attention = output.vision_hidden_states[model.config.r_layers - 1]
    return VqaOutput(output.question_answering_score, before_cross_attention)


def main() -> None:
    options = read_options(__doc__)
    training = VqaTraining(new_model, forward, options)
    steps = training.train(reserve=75)
    model = load_model(LxmertForQuestionAnswering, options)
    scores = training.evaluation.scores(model, forward)
    log(scores, options.out)
    encoder = training.encoder
    ablations = {"question_only": encoder.without_regions, "image_only": encoder.without_words}
    seconds = seconds_left(options, reserve=10) / len(ablations)
    for name, ablate in ablations.items():
        scores[f"accuracy_of_the_{name}_twin"] = training.baseline_scores(ablate, seconds=seconds)
    write_metrics(scores, model, options, steps=steps, questions_seen=steps * options.batch)


if __name__ == "__main__":
    main()
