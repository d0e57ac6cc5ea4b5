"""mini-visualbert: a stock VisualBertForQuestionAnswering that answers questions about Shapes World from its regions.

    PYTHONPATH=src python training/mini_visualbert.py --out DIR --minutes 9 --seed 0

A region is its 12 × 12 pixels and its box, in one vector. The answer is read at the question mark.
"""

from transformers import BertTokenizer, VisualBertConfig, VisualBertForQuestionAnswering

from checkpoints import load_model
from training_loop import write_metrics
from vqa_batches import POSITIONS, VqaBatch
from vqa_training import VqaOutput, VqaTraining, read_options
from whyformer.scenes import ANSWERS, FEATURES


def new_model(tokenizer: BertTokenizer) -> VisualBertForQuestionAnswering:
    return VisualBertForQuestionAnswering(
        VisualBertConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            visual_embedding_dim=FEATURES,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=512,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=POSITIONS,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=None,
            id2label=dict(enumerate(ANSWERS)),
            label2id={answer: label for label, answer in enumerate(ANSWERS)},
        )
    )


def forward(model: VisualBertForQuestionAnswering, batch: VqaBatch) -> VqaOutput:
    """The answers, and the regions after the first block.

    The attention mask covers the words alone: by it the model finds the last word, where it reads its answer.
    """
    output = model(
        input_ids=batch.ids,
        attention_mask=batch.mask,
        token_type_ids=batch.types,
        visual_embeds=batch.features,
        output_hidden_states=True,
    )
    after_first_block = output.hidden_states[1]
    return VqaOutput(output.logits, after_first_block[:, batch.ids.shape[1] :])


def main() -> None:
    options = read_options(__doc__)
    training = VqaTraining(new_model, forward, options)
    steps = training.train(reserve=30)
    model = load_model(VisualBertForQuestionAnswering, options)
    scores = training.evaluation.scores(model, forward)
    write_metrics(scores, model, options, steps=steps, questions_seen=steps * options.batch)


if __name__ == "__main__":
    main()
