"""Tests of headlights.senses."""
