"""Octavo's own colours: ink on paper by day, paper on ink by night."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="octavo",
    primary="#7aa2d6",
    secondary="#b59ad6",
    accent="#e0a458",
    foreground="#e4e0d6",
    background="#15171b",
    surface="#1c1f25",
    panel="#262a32",
    success="#8fbf7f",
    warning="#e6c35c",
    error="#e07a6b",
    dark=True,
    variables={
        "block-cursor-background": "#7aa2d6",
        "block-cursor-foreground": "#15171b",
        "block-cursor-blurred-background": "#353b47",
        "footer-key-foreground": "#e0a458",
        "input-selection-background": "#7aa2d6 40%",
        "border": "#7aa2d6",
        "border-blurred": "#3a404c",
        "scrollbar": "#3a404c",
        "scrollbar-background": "#15171b",
    },
)
LIGHT = Theme(
    name="octavo-light",
    primary="#2f5d9b",
    secondary="#74489b",
    accent="#9a5b00",
    foreground="#23262b",
    background="#faf7f0",
    surface="#f2eee4",
    panel="#e6e0d2",
    success="#3c7a2d",
    warning="#8a6500",
    error="#b3392a",
    dark=False,
    variables={
        "block-cursor-background": "#2f5d9b",
        "block-cursor-foreground": "#faf7f0",
        "block-cursor-blurred-background": "#d5cdb9",
        "footer-key-foreground": "#9a5b00",
        "input-selection-background": "#2f5d9b 30%",
        "border": "#2f5d9b",
        "border-blurred": "#c9c0ac",
        "scrollbar": "#c9c0ac",
        "scrollbar-background": "#faf7f0",
    },
)
THEMES = (DARK, LIGHT)
