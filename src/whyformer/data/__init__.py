"""Readers of data sets as their authors lay them out. Each example is read when it is asked for, by its number.

reviews = eraser("movies", split="test")
len(reviews), reviews[0].text, reviews[0].rationale
"""

from whyformer.data.coco import coco_instances, coco_truth
from whyformer.data.examples import Document, Examples, Instances, Photo, VisualQuestion
from whyformer.data.pictures import imagenet, imagenet_segmentation, oxford_pets, photos
from whyformer.data.questions import vqa
from whyformer.data.texts import eraser, newsgroups

__all__ = [
    "Document",
    "Examples",
    "Instances",
    "Photo",
    "VisualQuestion",
    "coco_instances",
    "coco_truth",
    "eraser",
    "imagenet",
    "imagenet_segmentation",
    "newsgroups",
    "oxford_pets",
    "photos",
    "vqa",
]
