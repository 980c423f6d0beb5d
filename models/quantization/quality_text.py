"""A text of the kinds that models are asked for: a story, facts, code, a table, figures in a dialogue, a letter."""

TEXT = """\
The lighthouse on the northern cape was built in 1874, after three ships had been lost in a single winter. Its keeper,
a quiet man named Elias Brandt, lived there with his daughter for thirty-one years. Every evening he climbed the 142
steps, filled the lamp, and wrote one line into the log: the wind, the weather, and anything that moved upon the sea.
When electricity came to the coast, the lamp no longer needed him, but he kept climbing the stairs until his knees gave
out. People asked why. "Somebody has to look," he said, "even when there is nothing to see."

Water boils at 100 degrees Celsius at sea level, but on a high mountain the air is thinner and the boiling point falls
by about one degree for every 300 metres. That is why pasta takes longer to cook in the Andes, and why a pressure
cooker, which does the opposite, saves time. The same principle explains how a refrigerator works: a liquid that
evaporates takes heat from its surroundings, and a gas that condenses gives it back.

```python
def primes(limit: int) -> list[int]:
    \"\"\"Return all prime numbers below limit, by the sieve of Eratosthenes.\"\"\"
    is_prime = [True] * limit
    is_prime[:2] = [False] * min(2, limit)
    for number in range(2, int(limit ** 0.5) + 1):
        if is_prime[number]:
            for multiple in range(number * number, limit, number):
                is_prime[multiple] = False
    return [number for number, prime in enumerate(is_prime) if prime]
```

Calling primes(30) returns [2, 3, 5, 7, 11, 13, 17, 19, 23, 29].

| City     | Country | Population |
|----------|---------|------------|
| Lisbon   | Portugal|    545,000 |
| Warsaw   | Poland  |  1,860,000 |
| Nairobi  | Kenya   |  4,400,000 |

User: I bought 3 notebooks at 2.40 each and a pen for 1.80. I paid with a ten. How much change do I get?
Assistant: Three notebooks cost 3 x 2.40 = 7.20. With the pen that makes 7.20 + 1.80 = 9.00. You get 1.00 back.
User: Thanks! And what is the French word for "change" in this sense?
Assistant: It is "monnaie", as in "gardez la monnaie", keep the change.

Dear Ms. Okafor, thank you for your letter of 12 March. We are sorry to hear that the parcel arrived damaged. Please
send us a photograph of the packaging, and we will replace the contents free of charge within five working days. Yours
sincerely, the customer service team.
"""
