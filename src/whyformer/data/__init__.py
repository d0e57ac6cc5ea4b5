"""Readers of data sets, by the names that suites use. Examples are read lazily, by index.

reviews = eraser("movies", split="test")
len(reviews), reviews[0].text, reviews[0].rationale
"""

from whyformer.data.coco import coco_instances, coco_truth
from whyformer.data.examples import Document, Examples, Instances, Photo, VisualQuestion
from whyformer.data.folders import image_folder, image_masks
from whyformer.data.generated import scenes
from whyformer.data.grids import image_grids, photo_grids
from whyformer.data.image_datasets import imagenet, imagenet_segmentation, oxford_pets, photos
from whyformer.data.labelled_tables import hugging_face, table
from whyformer.data.next_words import written_words
from whyformer.data.readers import READERS, reader, reader_named
from whyformer.data.stories import facts, passages
from whyformer.data.text_datasets import eraser, newsgroups
from whyformer.data.visual_questions import vqa

__all__ = [
    "READERS",
    "Document",
    "Examples",
    "Instances",
    "Photo",
    "VisualQuestion",
    "coco_instances",
    "coco_truth",
    "eraser",
    "facts",
    "hugging_face",
    "image_folder",
    "image_grids",
    "image_masks",
    "imagenet",
    "imagenet_segmentation",
    "newsgroups",
    "oxford_pets",
    "passages",
    "photo_grids",
    "photos",
    "reader",
    "reader_named",
    "scenes",
    "table",
    "vqa",
    "written_words",
]
