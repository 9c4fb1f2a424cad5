"""The words of the embedded corpus: plain tables, which tables.py reads.

An underscore stands for a blank. Entries are separated by commas.
"""

# "English[/plural] German gender German-plural": m, f, n; mw is a weak masculine, whose singular has the form of the
# plural except in the nominative. Keys: adjective class, pronoun, tags that say what can be done with the nouns.
NOUNS = {
    # he, she, it: the English pronoun (the German one follows the gender)
    "people he people": """man/men Mann m Männer, father Vater m Väter, tourist Tourist mw Touristen,
        student Student mw Studenten, soldier Soldat mw Soldaten, clown Clown m Clowns,
        teacher Lehrer m Lehrer, cook Koch m Köche, waiter Kellner m Kellner, farmer Bauer mw Bauern,
        doctor Arzt m Ärzte, policeman/policemen Polizist mw Polizisten, singer Sänger m Sänger,
        musician Musiker m Musiker, painter Maler m Maler, photographer Fotograf mw Fotografen,
        artist Künstler m Künstler, worker Arbeiter m Arbeiter, neighbour Nachbar mw Nachbarn,
        baker Bäcker m Bäcker, guest Gast m Gäste, gardener Gärtner m Gärtner, magician Zauberer m Zauberer,
        uncle Onkel m Onkel, knight Ritter m Ritter, pirate Pirat mw Piraten, prince Prinz mw Prinzen""",
    "people she people": """woman/women Frau f Frauen, mother Mutter f Mütter, aunt Tante f Tanten,
        nurse Krankenschwester f Krankenschwestern, bride Braut f Bräute, waitress Kellnerin f Kellnerinnen,
        queen Königin f Königinnen, witch Hexe f Hexen, saleswoman/saleswomen Verkäuferin f Verkäuferinnen,
        actress Schauspielerin f Schauspielerinnen, sister Schwester f Schwestern,
        princess Prinzessin f Prinzessinnen""",
    "youth he people": "boy Junge mw Jungen",
    "youth she people": "girl Mädchen n Mädchen",
    "youth it people": "child/children Kind n Kinder",
    "animal it animal": """dog Hund m Hunde, cat Katze f Katzen, horse Pferd n Pferde, cow Kuh f Kühe,
        goat Ziege f Ziegen, pig Schwein n Schweine, duck Ente f Enten, bird Vogel m Vögel,
        donkey Esel m Esel, rabbit Kaninchen n Kaninchen, squirrel Eichhörnchen n Eichhörnchen,
        monkey Affe mw Affen, goose/geese Gans f Gänse, chicken Huhn n Hühner, puppy Welpe mw Welpen,
        kitten Kätzchen n Kätzchen, swan Schwan m Schwäne, camel Kamel n Kamele, pony Pony n Ponys""",
    "animal it wild": """bear Bär mw Bären, elephant Elefant mw Elefanten, lion Löwe mw Löwen,
        fox Fuchs m Füchse, wolf/wolves Wolf m Wölfe, tiger Tiger m Tiger""",
    "vehicle it road cabin vehicle": """car Auto n Autos, bus Bus m Busse, truck Lastwagen m Lastwagen,
        taxi Taxi n Taxis, carriage Kutsche f Kutschen""",
    "vehicle it road vehicle": "tractor Traktor m Traktoren, motorcycle Motorrad n Motorräder",
    "vehicle it vehicle": "bicycle Fahrrad n Fahrräder, boat Boot n Boote, sled Schlitten m Schlitten",
    "text it read write give carry": """book Buch n Bücher, letter Brief m Briefe, poem Gedicht n Gedichte,
        fairy_tale Märchen n Märchen, postcard Postkarte f Postkarten, story Geschichte f Geschichten""",
    "text it read give carry": "newspaper Zeitung f Zeitungen, magazine Zeitschrift f Zeitschriften",
    "food it eat peel pluck give": """apple Apfel m Äpfel, orange Orange f Orangen, pear Birne f Birnen,
        lemon Zitrone f Zitronen, banana Banane f Bananen""",
    "food it eat peel give": """carrot Karotte f Karotten, potato/potatoes Kartoffel f Kartoffeln,
        egg Ei n Eier""",
    "food it eat pluck give": """cherry Kirsche f Kirschen, tomato/tomatoes Tomate f Tomaten,
        plum Pflaume f Pflaumen""",
    "food it eat bake give": """cake Kuchen m Kuchen, pizza Pizza f Pizzas, cookie Keks m Kekse,
        pretzel Brezel f Brezeln, pie Pastete f Pasteten""",
    "drink drink mass": """tea Tee m -, coffee Kaffee m -, juice Saft m -, milk Milch f -, water Wasser n -,
        beer Bier n -, lemonade Limonade f -, wine Wein m -""",
    "dish dish mass": """bread Brot n -, cheese Käse m -, fruit Obst n -, soup Suppe f -, meat Fleisch n -,
        rice Reis m -, chocolate Schokolade f -, salad Salat m -""",
    "clothes it wear in laundry": """coat Mantel m Mäntel, shirt Hemd n Hemden, jacket Jacke f Jacken,
        sweater Pullover m Pullover, suit Anzug m Anzüge, uniform Uniform f Uniformen,
        costume Kostüm n Kostüme, vest Weste f Westen, apron Schürze f Schürzen""",
    "clothes it laundry": "dress/dresses Kleid n Kleider, skirt Rock m Röcke, blouse Bluse f Blusen",
    "clothes it have carry give": """hat Hut m Hüte, cap Mütze f Mützen, scarf/scarves Schal m Schals,
        helmet Helm m Helme, bag Tasche f Taschen, backpack Rucksack m Rucksäcke,
        umbrella Regenschirm m Regenschirme""",
    "thing it play carry give": """ball Ball m Bälle, doll Puppe f Puppen, kite Drachen m Drachen,
        balloon Luftballon m Luftballons""",
    "thing it instrument carry repair": """guitar Gitarre f Gitarren, violin Geige f Geigen,
        flute Flöte f Flöten, trumpet Trompete f Trompeten, drum Trommel f Trommeln""",
    "thing it instrument repair": "piano Klavier n Klaviere",
    "thing it repair clean carry": """camera Kamera f Kameras, lamp Lampe f Lampen, clock Uhr f Uhren,
        radio Radio n Radios""",
    "thing it open carry give": "suitcase Koffer m Koffer, box Kiste f Kisten, gift Geschenk n Geschenke",
    "thing it fill carry clean": """bucket Eimer m Eimer, basket Korb m Körbe, bottle Flasche f Flaschen,
        cup Tasse f Tassen, bowl Schüssel f Schüsseln, pot Topf m Töpfe, vase Vase f Vasen""",
    "thing it clean carry": """plate Teller m Teller, spoon Löffel m Löffel, fork Gabel f Gabeln,
        knife/knives Messer n Messer, mirror Spiegel m Spiegel""",
    "thing it carry give": """key Schlüssel m Schlüssel, picture Bild n Bilder, flag Fahne f Fahnen,
        flower Blume f Blumen, rose Rose f Rosen, ring Ring m Ringe, stone Stein m Steine,
        pillow Kissen n Kissen, rope Seil n Seile, broom Besen m Besen, shovel Schaufel f Schaufeln,
        ladder Leiter f Leitern, hammer Hammer m Hämmer, sign Schild n Schilder""",
    "thing it burn carry": "candle Kerze f Kerzen, lantern Laterne f Laternen, torch Fackel f Fackeln",
    "thing it seat furniture": """chair Stuhl m Stühle, sofa Sofa n Sofas, bed Bett n Betten,
        armchair Sessel m Sessel""",
    "thing it furniture": "table Tisch m Tische, cupboard Schrank m Schränke, carpet Teppich m Teppiche",
    "thing it open knock": "door Tür f Türen, window Fenster n Fenster, gate Tor n Tore",
    "outside it near seat": "bench Bank f Bänke",
    "outside it near barrier paint": "fence Zaun m Zäune, wall Mauer f Mauern",
    "nature it near climb": "tree Baum m Bäume, rock Felsen m Felsen, hill Hügel m Hügel",
    "outside it near climb": "tower Turm m Türme",
    "nature it near barrier": "hedge Hecke f Hecken",
    "outside it near paint": "house Haus n Häuser, hut Hütte f Hütten",
    "outside it near": """tent Zelt n Zelte, statue Statue f Statuen, church Kirche f Kirchen,
        shed Schuppen m Schuppen""",
    "nature it near": "fountain Brunnen m Brunnen, bush/bushes Busch m Büsche, pond Teich m Teiche",
    "hair hair mass": "hair Haar n -",
}

# "English-preposition direction noun German-preposition German gender". Keys: i inside, o outside, k where
# people eat, s where people trade, v where vehicles are, w water, r rooms with furniture.
PLACES = {
    "o": """in into park in Park m, in into forest in Wald m, in into garden in Garten m,
        in into valley in Tal n, on onto meadow auf Wiese f, on onto field auf Feld n,
        on onto beach an Strand m, on onto hillside auf Hang m, on onto playground auf Spielplatz m,
        in into harbour in Hafen m, in into desert in Wüste f, on onto island auf Insel f""",
    "ov": """on onto street auf Straße f, on onto bridge auf Brücke f, in into city in Stadt f,
        in into village in Dorf n, on onto square auf Platz m, on onto path auf Weg m,
        in into courtyard in Hof m""",
    "os": "at to market auf Markt m, at to farm auf Bauernhof m",
    "k": "on onto terrace auf Terrasse f, on onto balcony auf Balkon m",
    "ikr": """in into kitchen in Küche f, in into living_room in Wohnzimmer n,
        in into restaurant in Restaurant n""",
    "ir": "in into bedroom in Schlafzimmer n, in into library in Bibliothek f, in into office in Büro n",
    "iks": "in into café in Café n, in into bakery in Bäckerei f",
    "is": "in into shop in Laden m, in into supermarket in Supermarkt m",
    "i": """in into school in Schule f, in into museum in Museum n, in into hotel in Hotel n,
        in into theatre in Theater n, in into hospital in Krankenhaus n, in into castle in Schloss n,
        in into factory in Fabrik f""",
    "ig": "in into workshop in Werkstatt f, in into garage in Garage f",
    "w": "in into lake in See m, in into river in Fluss m, in into sea in Meer n, in into pool in Becken n",
}

# "English German [stem before an ending]". Keys: matching noun classes. A colour comes last in a phrase.
ADJECTIVES = {
    "people animal place thing outside vehicle clothes text": "old alt",
    "people": "serious ernst, famous berühmt, strong stark, slim schlank, polite höflich",
    "people youth": """happy glücklich, sad traurig, blond blond, friendly freundlich, nervous nervös,
        proud stolz, shy schüchtern, angry wütend, bored gelangweilt, clever klug""",
    "people youth animal": """young jung, tired müde müd, hungry hungrig, curious neugierig, brave mutig,
        thirsty durstig, lazy faul""",
    "people clothes": "elegant elegant",
    "animal": "wild wild, fat dick, shaggy zottig, playful verspielt",
    "vehicle": "fast schnell",
    "animal thing outside nature vehicle place food": "big groß",
    "youth animal thing outside nature vehicle place food": "small klein",
    "animal clothes": "wet nass",
    "thing vehicle clothes text": "new neu",
    "thing clothes": "expensive teuer teur, cheap billig, dirty schmutzig",
    "thing": "heavy schwer, shiny glänzend, strange seltsam",
    "thing vehicle": "broken kaputt",
    "thing outside nature place": "beautiful schön",
    "clothes": "warm warm, torn zerrissen, striped gestreift",
    "text hair": "long lang, short kurz",
    "text": "interesting interessant, exciting spannend, boring langweilig, funny lustig",
    "food dish": "fresh frisch, delicious lecker",
    "food": "ripe reif, sweet süß, sour sauer saur",
    "drink": "hot heiß, cold kalt",
    "outside": "high hoch hoh",
    "place": "quiet ruhig, empty leer, crowded überfüllt, modern modern, dark dunkel dunkl",
    "hair": "curly lockig",
}
COLOURS = {
    "animal thing vehicle clothes hair outside": "black schwarz, brown braun, grey grau",
    "animal thing vehicle clothes outside": "white weiß",
    "thing vehicle clothes hair": "red rot",
    "thing vehicle clothes": "green grün, blue blau, yellow gelb",
    "clothes": "colourful bunt",
    "thing": "golden golden",
}

# Keys: subjects (people, animal, wild, road) | tags of objects (empty: intransitive) | keys of places (-: none)
# | marks: a takes an adverb of action, s one of rest, w none; 1: only one object; =: as many objects as subjects;
# !: involuntary. Values: "English [sich] German [third person, if the vowel changes] [preposition:case | dat]"; a plus
# follows a separable particle.
VERBS = {
    "people animal wild||o|s": """sleep schlafen schläft, stand stehen, sit sitzen, wait warten,
        rest sich aus+ruhen, play spielen""",
    "people animal wild||o|s!": """yawn gähnen, fall_asleep ein+schlafen schläft, wake_up auf+wachen,
        fall_over um+fallen fällt""",
    "people animal wild||o|a": """run_away weg+laufen läuft, stand_up auf+stehen, lie_down sich hin+legen,
        sit_down sich hin+setzen, look_around sich um+sehen sieht, hide sich verstecken, jump springen,
        come_back zurück+kommen""",
    "people||io|s": """dance tanzen, sing singen, work arbeiten, pray beten, think nach+denken, wave winken,
        whistle pfeifen, whisper flüstern, relax sich entspannen, celebrate feiern, tidy_up auf+räumen""",
    "people||io|s!": "laugh lachen, smile lächeln, cry weinen",
    "people||s|s": "go_shopping ein+kaufen",
    "people||k|s": "have_breakfast frühstücken",
    "people||w|a": "swim schwimmen, dive tauchen, bathe baden",
    "road||v|w": """stop an+halten hält, turn ab+biegen, drive_off los+fahren fährt, arrive an+kommen,
        turn_around um+kehren""",
    "people|read|io|a": "read lesen liest",
    "people|write|i|a": "write schreiben",
    "people|eat|k|a": "eat essen isst, taste probieren, cut schneiden",
    "people|peel|k|a": "peel schälen",
    "people|bake|k|a": "bake backen",
    "people|pluck|o|a": "pick pflücken",
    "people|drink|k|a": "drink trinken, pour_out aus+schenken, order bestellen",
    "people|dish|k|a": "prepare zu+bereiten, share teilen, order bestellen, serve servieren, eat essen isst",
    "people|wear|i|a=": "put_on an+ziehen, take_off aus+ziehen, try_on an+probieren",
    "people|laundry|i|a": "wash waschen wäscht, iron bügeln, sew nähen, hang_up auf+hängen",
    "people|vehicle|vg|a1": "repair reparieren, wash waschen wäscht, push schieben, photograph fotografieren",
    "people|cabin||-1": "get_into ein+steigen in:acc, get_out_of aus+steigen aus:dat",
    "people|carry laundry read instrument|s|w": "buy kaufen, sell verkaufen, choose aus+suchen",
    "people|carry|io|w": """carry tragen trägt, look_for suchen, pick_up auf+heben, put_away weg+räumen,
        hold halten hält, pack ein+packen, unpack aus+packen, throw_away weg+werfen wirft,
        look_at an+sehen sieht, draw zeichnen, give_back zurück+geben gibt""",
    "people|repair|i|a": "repair reparieren",
    "people|clean|i|a": "clean putzen",
    "people|fill|io|a": "fill füllen",
    "people|burn|io|a": "light an+zünden, put_out aus+löschen",
    "people|open|i|a": "open öffnen, close schließen",
    "people|paint|o|a": "paint an+malen",
    "people|instrument|io|s1": "play spielen auf:dat",
    "people|play|io|s1": "play_with spielen mit:dat",
    "people|seat|-|s1": "sit_on sitzen auf:dat, sleep_on schlafen schläft auf:dat",
    "people|knock|-|a1": "knock_on klopfen an:acc",
    "people animal|barrier|-|a1": "jump_over springen über:acc",
    "people|climb|-|a1": "climb_onto klettern auf:acc",
    "people|people|io|w": """help helfen hilft dat, thank danken dat, hug umarmen, greet begrüßen,
        kiss küssen, visit besuchen, invite ein+laden lädt, call an+rufen, listen_to zu+hören dat,
        wave_to zu+winken dat, comfort trösten, laugh_at aus+lachen, dance_with tanzen mit:dat,
        talk_to reden mit:dat, wait_for warten auf:acc, take_care_of sich kümmern um:acc,
        point_at zeigen auf:acc""",
    "people|people|io|w!": "dream_of träumen von:dat, think_of denken an:acc",
    "people|animal|o|a": """feed füttern, pet streicheln, brush bürsten, wash waschen wäscht, lead führen,
        photograph fotografieren, take_care_of sich kümmern um:acc, play_with spielen mit:dat""",
    "people|animal wild|o|w": """draw zeichnen, watch zu+schauen dat, point_at zeigen auf:acc,
        run_away_from weg+laufen läuft vor:dat""",
    "animal wild|animal|o|w": "chase jagen, sniff_at beschnuppern, follow folgen dat, watch zu+schauen dat",
    "animal|people|o|w": "follow folgen dat, watch zu+schauen dat",
}
GIVING = {  # a thing to a person; in German, the person comes first
    "give": "give geben gibt, show zeigen, bring bringen, offer an+bieten",
    "read": "read_out vor+lesen liest",
}
MOTION = "run rennen, walk gehen, sneak schleichen, hurry eilen, come kommen"

# "English German": adverbs by mark, numbers, quantities, prepositions and times
ADVERBS = {
    "a": "slowly langsam, carefully vorsichtig, quickly schnell, calmly gelassen",
    "s": "quietly leise, peacefully friedlich, happily vergnügt, again wieder",
}
TOGETHER, ALONE = ("together", "zusammen"), ("alone", "allein")
NUMBERS = "two zwei, three drei, four vier, five fünf, six sechs, ten zehn"
QUANTITIES = "several mehrere, many viele, some einige"  # these have case endings
NEAR = "next_to neben, behind hinter, in_front_of vor, near bei"
TIMES = """in_the_morning am_Morgen, in_the_evening am_Abend, in_the_afternoon am_Nachmittag,
    at_night in_der_Nacht, in_winter im_Winter, in_summer im_Sommer, in_spring im_Frühling,
    in_autumn im_Herbst, on_Sundays sonntags, on_Mondays montags, every_day jeden_Tag, today heute,
    at_noon am_Mittag, after_school nach_der_Schule, before_dinner vor_dem_Abendessen,
    after_work nach_der_Arbeit, sometimes manchmal, often oft"""
MODALS = "can kann können, must muss müssen, should soll sollen, may darf dürfen, want_to will wollen"
ATTEMPTS = "try versuchen, plan planen, start beginnen, refuse sich weigern"
REASONS = {  # {state: verbs that it is a reason for}
    "tired müde": "sleep, rest, yawn, lie_down, sit_down, fall_asleep",
    "happy glücklich": "sing, dance, laugh, smile, celebrate, whistle",
    "sad traurig": "cry, think, pray, sit",
    "bored gelangweilt": "yawn, whistle, look_around, whisper",
    "nervous nervös": "wait, whisper, stand_up, think",
    "curious neugierig": "look_around, come_back, wake_up, wait",
}

# German endings, one for each of GENDERS. "definite" follows der; "mixed" follows ein and sein; "strong" is used if no
# article shows the case. viele itself also takes the strong endings.
GENDERS = ("m", "f", "n", "plural")
ENDINGS = {
    "definite": {
        "nom": ("e", "e", "e", "en"),
        "acc": ("en", "e", "e", "en"),
        "dat": ("en", "en", "en", "en"),
    },
    "mixed": {
        "nom": ("er", "e", "es", "en"),
        "acc": ("en", "e", "es", "en"),
        "dat": ("en", "en", "en", "en"),
    },
    "strong": {"nom": ("er", "e", "es", "e"), "acc": ("en", "e", "es", "e"), "dat": ("em", "er", "em", "en")},
}
DEFINITE = {
    "nom": ("der", "die", "das", "die"),
    "acc": ("den", "die", "das", "die"),
    "dat": ("dem", "der", "dem", "den"),
}
INDEFINITE = {"nom": ("", "e", "", "e"), "acc": ("en", "e", "", "e"), "dat": ("em", "er", "em", "en")}
CONTRACTIONS = {"in dem": "im", "an dem": "am", "von dem": "vom", "bei dem": "beim", "in das": "ins"}
PRONOUNS = {"m": "er", "f": "sie", "n": "es", "plural": "sie"}
POSSESSIVES = {"he": "his", "she": "her", "it": "its", "they": "their"}
