"""Facts that every language model has read many times: questions, answers, and the word that answers."""

from __future__ import annotations

# subject | capital
CAPITALS = """
France | Paris
Italy | Rome
Spain | Madrid
Germany | Berlin
Austria | Vienna
Greece | Athens
Portugal | Lisbon
Ireland | Dublin
Poland | Warsaw
Hungary | Budapest
Norway | Oslo
Sweden | Stockholm
Finland | Helsinki
Denmark | Copenhagen
Russia | Moscow
Japan | Tokyo
China | Beijing
India | New Delhi
Egypt | Cairo
Turkey | Ankara
Canada | Ottawa
Mexico | Mexico City
Cuba | Havana
Peru | Lima
Chile | Santiago
Kenya | Nairobi
Thailand | Bangkok
Vietnam | Hanoi
Iran | Tehran
Iraq | Baghdad
Romania | Bucharest
Bulgaria | Sofia
Serbia | Belgrade
Croatia | Zagreb
Ukraine | Kyiv
Iceland | Reykjavik
Belgium | Brussels
Argentina | Buenos Aires
Colombia | Bogota
Venezuela | Caracas
South Korea | Seoul
Indonesia | Jakarta
Pakistan | Islamabad
Nepal | Kathmandu
Ethiopia | Addis Ababa
Ghana | Accra
Lebanon | Beirut
Syria | Damascus
Jordan | Amman
Philippines | Manila
Mongolia | Ulaanbaatar
Latvia | Riga
Estonia | Tallinn
Slovakia | Bratislava
New Zealand | Wellington
"""
OTHERS = """
At what temperature does water boil? | Water boils at 100 degrees Celsius. | 100
How many days does a week have? | A week has seven days. | seven
How many months does a year have? | A year has twelve months. | twelve
Which planet is closest to the Sun? | The planet closest to the Sun is Mercury. | Mercury
What is the largest planet of the solar system? | The largest planet of the solar system is Jupiter. | Jupiter
Who wrote Romeo and Juliet? | Romeo and Juliet was written by William Shakespeare. | Shakespeare
Who painted the Mona Lisa? | The Mona Lisa was painted by Leonardo da Vinci. | Leonardo
What is the chemical formula of water? | The chemical formula of water is H2O. | H2O
Who developed the theory of relativity? | The theory of relativity was developed by Albert Einstein. | Einstein
In which year did the First World War begin? | The First World War began in 1914. | 1914
In which year did the Second World War end? | The Second World War ended in 1945. | 1945
Who was the first person on the Moon? | The first person on the Moon was Neil Armstrong. | Armstrong
Which gas do plants take from the air? | Plants take carbon dioxide from the air. | carbon dioxide
What is the largest ocean? | The largest ocean is the Pacific Ocean. | Pacific
What is the highest mountain? | The highest mountain is Mount Everest. | Everest
Who was the first president of the United States? | The first president was George Washington. | Washington
In which city is the Eiffel Tower? | The Eiffel Tower is in Paris. | Paris
How many legs does a spider have? | A spider has eight legs. | eight
Which metal has the symbol Fe? | The metal with the symbol Fe is iron. | iron
Who wrote The Origin of Species? | The Origin of Species was written by Charles Darwin. | Darwin
Who wrote Hamlet? | Hamlet was written by William Shakespeare. | Shakespeare
Who wrote Don Quixote? | Don Quixote was written by Miguel de Cervantes. | Cervantes
Who wrote War and Peace? | War and Peace was written by Leo Tolstoy. | Tolstoy
Who wrote The Odyssey? | The Odyssey was written by Homer. | Homer
Who discovered penicillin? | Penicillin was discovered by Alexander Fleming. | Fleming
Who invented the telephone? | The telephone was invented by Alexander Graham Bell. | Bell
Who discovered gravity? | Gravity was discovered by Isaac Newton. | Newton
Who painted The Starry Night? | The Starry Night was painted by Vincent van Gogh. | Gogh
Who composed the Ninth Symphony? | The Ninth Symphony was composed by Ludwig van Beethoven. | Beethoven
At what temperature does water freeze? | Water freezes at 0 degrees Celsius. | 0
How many continents are there? | There are seven continents. | seven
How many hours does a day have? | A day has 24 hours. | 24
How many minutes does an hour have? | An hour has 60 minutes. | 60
How many sides does a triangle have? | A triangle has three sides. | three
How many planets does the solar system have? | The solar system has eight planets. | eight
Which metal has the symbol Au? | The metal with the symbol Au is gold. | gold
Which gas do people need to breathe? | People need oxygen to breathe. | oxygen
Which organ pumps blood? | The heart pumps blood. | heart
Which animal is the largest? | The largest animal is the blue whale. | whale
Which language is spoken in Brazil? | The language spoken in Brazil is Portuguese. | Portuguese
In which country is Paris? | Paris is in France. | France
In which city is the Colosseum? | The Colosseum is in Rome. | Rome
In which country are the pyramids of Giza? | The pyramids of Giza are in Egypt. | Egypt
In which year did the Second World War begin? | The Second World War began in 1939. | 1939
What is the boiling point of water in Fahrenheit? | Water boils at 212 degrees Fahrenheit. | 212
"""


def known_facts() -> tuple[tuple[str, str, str], ...]:
    """Each question, its answer in a sentence, and the word that answers."""
    capitals = [[part.strip() for part in line.split("|")] for line in CAPITALS.strip().splitlines()]
    others = [[part.strip() for part in line.split("|")] for line in OTHERS.strip().splitlines()]
    capital_questions = [
        (f"What is the capital of {land}?", f"The capital of {land} is {town}.", town) for land, town in capitals
    ]
    return (*capital_questions, *((question, answer, value) for question, answer, value in others))
